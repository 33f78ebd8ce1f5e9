# Server and clients of a real federation: fedwca with Flower. See docs/deploy.md.
FROM python:3.11-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints-flower.txt ./
COPY baselines baselines
COPY fedwca fedwca
RUN pip install --no-cache-dir --constraint constraints-flower.txt '.[flower]' \
    && useradd --create-home --uid 1000 fedwca
USER 1000
WORKDIR /home/fedwca
ENTRYPOINT ["fedwca"]
CMD ["--help"]

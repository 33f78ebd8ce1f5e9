"""Which settings of two runs differ."""

from fedwca.config.resolve_config import resolve_plan
from fedwca.results.differing_settings import differing_settings


def test_names_that_read_like_equal_numbers_are_different_names() -> None:
    plan = resolve_plan({}).described()
    for first, second in [("01", "1"), ("1e5", "100000"), ("1_0", "10")]:
        stored, requested = ({**plan, "config": {**plan["config"], "source": name}} for name in (first, second))
        assert differing_settings(stored, requested) == {"source": (first, second)}
    stored, requested = (
        {**plan, "config": {**plan["config"], "components": {"dataset": {"hub": {"revision": revision}}}}}
        for revision in ("1.1", "1.10")
    )
    assert list(differing_settings(stored, requested)) == ["components.dataset.hub.revision"]
    not_a_number = {**plan, "config": {**plan["config"], "source": "nan"}}
    assert differing_settings(not_a_number, not_a_number) == {}

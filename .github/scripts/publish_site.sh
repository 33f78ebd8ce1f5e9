#!/usr/bin/env bash
# Puts the built site/ on the branch gh-pages, as the folder of a version such as 0.1, beside those of others; the root leads
# to the newest. Usage: publish_site.sh VERSION, in a checkout that may push.
set -euo pipefail
version=${1:?the version, such as 0.1.0}
folder=${version%.*}
pages=$(mktemp -d)
if git fetch --depth 1 origin gh-pages; then
  git worktree add --detach "$pages" FETCH_HEAD
else
  git worktree add --detach "$pages"
  git -C "$pages" switch --orphan gh-pages
fi
rm -rf "${pages:?}/$folder"
cp -r site "$pages/$folder"
touch "$pages/.nojekyll"
newest=$(cd "$pages" && printf '%s\n' [0-9]* | sort --version-sort | tail -n 1)
printf '<meta http-equiv="refresh" content="0; url=%s/">\n' "$newest" > "$pages/index.html"
git -C "$pages" add --all
git -C "$pages" -c user.name=release -c user.email=release@localhost commit --quiet --allow-empty --message "Documentation of $version"
git -C "$pages" push origin HEAD:gh-pages
git worktree remove --force "$pages"

# Sourced by the other scripts: a virtual environment in .venv with pinned versions, made once and kept.
# Usage: . scripts/setup.sh PINS...   (names of files in scripts/, later ones may add to earlier ones)
uv_version=0.13.8
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "occamroute needs Python 3.11 or newer, and none was found." >&2
  return 1
}

if [ ! -x .venv/bin/python ]; then
  python=$(find_python)
  "$python" -m venv .venv
fi

pins=()
for name in "$@"; do pins+=("scripts/$name"); done
stamp=.venv/occamroute-$(IFS=-; echo "${*%.txt}").stamp
wanted=$(cat "${pins[@]}" pyproject.toml | cksum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "installing into .venv …"
  # The pins are complete. Looking for dependencies could only bring other versions, or gigabytes for a GPU.
  pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile)
  # uv takes a quarter of the time, but does not read pip's settings: torch, whose build for a CPU may come from a place
  # that only pip knows, is left to pip, and so is everything where uv cannot reach the packages.
  torch=$(grep -h '^torch==' "${pins[@]}" || true)
  others=$(mktemp)
  cat "${pins[@]}" | grep -v '^torch==' > "$others"
  quickly() {
    "${pip[@]}" --no-deps "uv==$uv_version" &&
      .venv/bin/python -m uv pip install --quiet --python .venv/bin/python --no-deps -r "$others"
  }
  if ! quickly; then
    for pin in "${pins[@]}"; do "${pip[@]}" --no-deps -r "$pin"; done
  fi
  rm "$others"
  if [ -n "$torch" ]; then
    "${pip[@]}" --no-deps "$torch"
    # Where there is only a build of torch for a GPU, it needs its gigabytes even on a machine without one.
    if ! .venv/bin/python -c 'import torch' 2>/dev/null; then "${pip[@]}" "$torch"; fi
  fi
  "${pip[@]}" --no-deps --no-build-isolation -e .
  echo "$wanted" > "$stamp"
fi

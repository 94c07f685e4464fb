#!/usr/bin/env bash
# Type checks the package and everything around it: check_types.sh VENV_BIN
# The checkout is the package itself, so mypy sees it through a link of the package's name.
set -euo pipefail
root="$PWD" mypy="$PWD/$1/mypy"
mkdir -p .build/types
ln -sfn "$root" .build/types/barnabas
cd .build/types
export MYPYPATH="."
"$mypy" --config-file "$root/pyproject.toml" --cache-dir "$root/.mypy_cache" -p barnabas
for around in tests benchmarks examples; do
    [ -n "$(find "$root/$around" -name '*.py' -print -quit)" ] || continue
    MYPYPATH=".:$root/$around:$root/examples" "$mypy" --config-file "$root/pyproject.toml" --cache-dir "$root/.mypy_cache" \
        --explicit-package-bases "$root/$around"
done

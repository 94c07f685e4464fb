#!/usr/bin/env bash
# Makes the virtual environment, with an extra of Barnabas in it: setup_venv.sh PYTHON VENV EXTRA
set -euo pipefail
python="$1" venv="$2" extra="$3"

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Python 3.11 or later is needed; set PYTHON=/path/to/python3.11 (tried: $python)" >&2
    exit 1
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing into $venv (a few minutes the first time)" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extra]"

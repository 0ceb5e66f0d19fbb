#!/usr/bin/env bash
# Makes the virtual environment that the tests' peers run in, if it is not
# there as it should be.
set -euo pipefail
cd "$(dirname "$0")"
if ! cmp -s requirements.txt .venv/installed.txt; then
    rm -rf .venv
    "${PYTHON:-python3}" -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
    cp requirements.txt .venv/installed.txt
fi
.venv/bin/python -c 'import msgspec, zmq; print("msgspec", msgspec.__version__, "pyzmq", zmq.__version__)'

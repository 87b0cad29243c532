#!/bin/sh
# Install one distribution file into an empty environment, away from the checkout, and see it work.
#     sh tests/install.sh PYTHON dist/kernsift-0.1.0-py3-none-any.whl
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
file=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
"$python" -m venv "$where/env"
cd "$where"
env/bin/python -m pip install -qq "$file"
env/bin/python -c 'import kernsift; [getattr(kernsift, name) for name in kernsift.__all__]; print(kernsift.__version__)'
env/bin/kernsift demo >demo.txt
grep -q "selective p" demo.txt
env/bin/python -m pip check -q
echo "$(basename "$file") installs and runs"

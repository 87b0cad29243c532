#!/bin/sh
# Install one distribution file into an empty environment, away from the checkout, and see it work: bare, then with
# the extras for pictures, reports and files. For the other extras pip is asked whether they go together.
#     sh tests/install.sh PYTHON dist/kernsift-0.2.0-py3-none-any.whl
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
code=0
env/bin/kernsift demo --report demo.html 2>missing.txt || code=$?
test "$code" = 3 && grep -q "pip install" missing.txt

env/bin/python -m pip install -qq "$file[plot,report,files]"
env/bin/kernsift demo --report demo.html >demo.txt
grep -q "<svg" demo.html
env/bin/python - <<'PROGRAM'
import pandas as pd

X = pd.DataFrame({"a": range(40), "b": [i * i % 7 for i in range(40)]})
X.to_parquet("x.parquet")
X.assign(a=X["a"] + 30).to_excel("y.xlsx", index=False)
PROGRAM
env/bin/kernsift compare x.parquet y.xlsx --columns a,b --quiet | grep -q "^\* a "
env/bin/python -c 'import kernsift; kernsift.compare([[1.0], [2.0], [4.0]], [[1.0], [3.0], [9.0]]).plot()'

# torch, the only package of `gpu`, has gigabytes and is left out. The metadata of wheel and sdist are the same, and
# looking at all packages takes minutes.
others=$(env/bin/python -c '
from importlib.metadata import metadata
print(",".join(sorted(set(metadata("kernsift").get_all("Provides-Extra")) - {"gpu"})))')
case "$file" in
    *.whl) env/bin/python -m pip install -qq --dry-run "$file[$others]" ;;
esac
env/bin/python -m pip check -q
echo "$(basename "$file") installs and runs, alone and with its extras ($others)"

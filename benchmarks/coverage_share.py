"""The shares of lines and of branches that the tests reach: fails below a percentage of lines.

    python benchmarks/coverage_share.py .coverage.json 95

`coverage report --fail-under` counts lines and branches together, so that one cannot be told from the other.
"""

import json
import sys
from pathlib import Path

totals = json.loads(Path(sys.argv[1]).read_text())["totals"]
lines = 100 * totals["covered_lines"] / totals["num_statements"]
branches = 100 * totals["covered_branches"] / totals["num_branches"]
print(f"lines {lines:.1f}% of {totals['num_statements']:,}, branches {branches:.1f}% of {totals['num_branches']:,}")
sys.exit(lines < float(sys.argv[2]))

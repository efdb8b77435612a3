"""Which kept results are out of date, and why: a reminder before releases, which always exits with 0.

    python benchmarks/current.py [--json]
    python benchmarks/current.py --stamp NAME [--commit COMMIT]

``--stamp`` stamps a result that was just made; with ``--commit`` one that was measured at that commit.
"""

from __future__ import annotations

import argparse
import json

from stamping import RESULTS, check, record


def main() -> None:
    """List all results, or stamp one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stamp", choices=sorted(RESULTS), metavar="NAME")
    parser.add_argument("--commit", help="the commit at which the result was measured; without it, the code as it is")
    given = parser.parse_args()
    if given.commit and not given.stamp:
        parser.error("--commit needs --stamp.")
    if given.stamp:
        record(given.stamp, commit=given.commit)
        return
    found = check()
    if given.json:
        rows = [{"result": one.name, "current": one.current, "reasons": one.reasons, "command": one.command}
                for one in found]  # fmt: skip
        print(json.dumps(rows, indent=2))
        return
    for one in found:
        print(f"{one.name}: {'current' if one.current else 'out of date'}")
        for reason in one.reasons:
            print(f"    {reason}")
        if not one.current:
            print(f"    to measure again: {one.command}")
            print(f"    and then: python benchmarks/current.py --stamp {one.name}")


if __name__ == "__main__":
    main()

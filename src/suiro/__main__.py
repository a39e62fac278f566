"""`python -m suiro`: the same as `suiro`."""

from __future__ import annotations

from suiro.cli import main

if __name__ == "__main__":
    main()

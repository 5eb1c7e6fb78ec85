"""Parts of bench-analyze.py and route-analyze.py."""

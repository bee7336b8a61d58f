"""What several tests share: data, oracles, processes, a browser.  Fixtures are in conftest.py."""

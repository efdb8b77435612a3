"""``occamroute`` as a process with the short list of candidates, for tests that start it many times."""

from quick_candidates import use_few_candidates

from occamroute.cli import main

if __name__ == "__main__":
    use_few_candidates()
    main()

"""Run a pool over labelled queries, and write down what each classifier did."""

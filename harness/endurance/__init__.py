"""Long trials of rounds through Prefect. They take minutes, so no test runs them."""

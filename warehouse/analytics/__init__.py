"""SQL over records: views, copies of marts, the cookbook."""

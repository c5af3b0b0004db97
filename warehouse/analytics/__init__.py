"""SQL over records: the views, copies of marts, questions and the cookbook."""

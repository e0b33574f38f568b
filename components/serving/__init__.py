"""Model servers, and what scales and fills them."""

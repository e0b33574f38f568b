"""The gateway in front of model servers: routes, endpoint pickers and the router."""

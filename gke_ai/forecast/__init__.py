"""What happens in the queue, as plain data: the model of a forecast, and how it is read from observations. Pure.

`rehearse`, `simulate` and `when` make forecasts, `render` shows them, and `compare` compares them with what happened.
"""

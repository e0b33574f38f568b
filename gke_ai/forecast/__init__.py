"""What a change does in the queue, as plain data: the model of a forecast, and how it is read from observations. Pure.

`rehearse` makes forecasts, `report` shows them, and `ops` compares them with what happened.
"""

"""Alerts: what somebody should know at once, as a line of the log and as a request to a webhook.

`alert` has alerts as plain data, in the form that Prometheus's Alertmanager takes; `webhook` sends them.
"""

// Requests, responses and their fields, so that a client needs no second dependency.
@_exported public import HTTPTypes

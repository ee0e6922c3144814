package v1beta1

// LeasePrefix and a node's name make the name of the Lease by which the node's agent shows that it lives.
const LeasePrefix = "holdfast-node-"

package v1

// NodeConfig is what the operator writes for the node pods, in a ConfigMap: the same for all nodes.
type NodeConfig struct {
	Pools []PoolSpec `json:"pools"`
}

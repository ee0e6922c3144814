package v1beta1

// NodeConfig is what the operator writes for the node pods, in a ConfigMap: the same for all nodes.
type NodeConfig struct {
	// pools of all nodes.
	// +listType=atomic
	// +required
	Pools []PoolSpec `json:"pools"`
}

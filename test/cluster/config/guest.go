package config

import "encoding/json"

// Guest is the configuration of the first program of a node with a kernel of its own. Paths are the host's: the guest sees the
// host's files, read-only, but has its own /var.
type Guest struct {
	Name      string
	Address   string   // of the node, in Network
	Prefix    int      // length of the network's prefix
	Gateway   string   // the first node, which knows the way to all others
	Cluster   string   // directory of the cluster, which the guest reads
	Boot      string   // directory in it that the guest may write: logs, and what its kernel needs
	Own       []string // directories that the guest has on its own disk, wherever they lie
	Listen    string   // where the guest answers its host
	Cert, Key string   // as whom
	CA        string   // and whom it believes
	Socket    string   // of containerd
	Daemons   []Daemon // in the order in which they start
}

// Daemon is a program that a guest keeps running.
type Daemon struct {
	Name string
	Argv []string
}

// Spec renders what the guest reads.
func (g Guest) Spec() ([]byte, error) { return json.MarshalIndent(g, "", "  ") }

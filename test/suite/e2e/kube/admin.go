package kube

import (
	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Admin does what the commands of holdfast do for an administrator, whose output is in the log of the test.
func (s *Space) Admin() *admin.Admin {
	s.t.Helper()
	clients := check.Got(admin.Connect(s.config, System))(s.t)
	a := check.Got(admin.New(admin.Config{Clients: clients, Out: s.t.Output(), Timeout: Patience}))(s.t)
	return a
}

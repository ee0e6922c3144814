package kube

import (
	"github.com/holdfast-storage/holdfast/admin"
)

// Admin does what the commands of holdfast do for an administrator, whose output is in the log of the test.
func (s *Space) Admin() *admin.Admin {
	s.t.Helper()
	clients, err := admin.Connect(s.config, System)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := admin.New(admin.Config{Clients: clients, Out: s.t.Output(), Timeout: Patience})
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

package nfsserver

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestClients_AnAddressBesideThePodsOfANodeIsItsOwnUnlessAPodHasIt(t *testing.T) {
	pod := func(node, namespace string, agent, host bool, ips ...string) core.Pod {
		p := core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: core.PodSpec{NodeName: node, HostNetwork: host}}
		if agent {
			p.Labels = map[string]string{v1beta1.ComponentLabel: v1beta1.NodeComponent}
		}
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, core.PodIP{IP: ip})
		}
		return p
	}
	agent := pod("a", "ours", true, false, "10.0.3.14", "fd00:3::14")
	for name, test := range map[string]struct {
		pods     []core.Pod
		reported []string
		want     []string
	}{
		"a router's":                 {[]core.Pod{agent}, []string{"10.0.3.77", "fd00:3::77"}, []string{"10.0.3.77", "fd00:3::77"}},
		"of another network":         {[]core.Pod{agent}, []string{"10.0.4.77", "198.51.100.4", "fd00:4::1"}, nil},
		"of a pod":                   {[]core.Pod{agent, pod("a", "shop", false, false, "10.0.3.77")}, []string{"10.0.3.77", "10.0.3.78"}, []string{"10.0.3.78"}},
		"its own pod's":              {[]core.Pod{agent}, []string{"10.0.3.14"}, nil},
		"a pod in the node's":        {[]core.Pod{agent, pod("a", "shop", false, true, "10.0.3.77")}, []string{"10.0.3.77"}, []string{"10.0.3.77"}},
		"the agent in the node's":    {[]core.Pod{pod("a", "ours", true, true, "10.0.3.14")}, []string{"10.0.3.77"}, nil},
		"of another node":            {[]core.Pod{pod("b", "ours", true, false, "10.0.3.14")}, []string{"10.0.3.77"}, nil},
		"a pod that calls itself so": {[]core.Pod{pod("a", "shop", true, false, "10.0.3.14")}, []string{"10.0.3.77"}, nil},
		"no agent yet":               {nil, []string{"10.0.3.77"}, nil},
	} {
		if got := besidePods("a", "ours", test.pods, test.reported); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	n := nodeAt("a", nil, "192.168.0.7")
	n.Spec.PodCIDRs = nil
	agents := map[string]*v1beta1.StorageNode{"a": {Status: v1beta1.StorageNodeStatus{Addresses: []string{"10.0.3.77", "10.0.3.78"}}}}
	if got := clientsOf([]*core.Node{n}, agents, map[string][]string{"a": {"10.0.3.77"}}, nil, nil); !slices.Equal(got, []string{"10.0.3.77", "192.168.0.7"}) {
		t.Errorf("let in are %v", got)
	}
}

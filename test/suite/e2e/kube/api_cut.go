package kube

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// apiTable drops what comes to the API server from some addresses.
const apiTable = `chain in { type filter hook input priority 0; ip saddr { %s } tcp dport %s drop; };`

// CutAPI has all packets lost that a node of its own kernel, and its pods, send to the API server, and returns what lets
// them through again. All else of its network works. The end of the test, however it ends, lets them through if the test
// has not.
func (s *Space) CutAPI(node string) (mend func()) {
	s.t.Helper()
	s.NeedMachines("to cut a node from the API server")
	server := check.Got(url.Parse(s.config.Host))(s.t)
	from := check.Got(s.addressesOf(node))(s.t)
	network := check.Got(os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pidOf("kube-apiserver"))))(s.t)
	return s.cut(network, "e2e-api", fmt.Sprintf(apiTable, strings.Join(from, ", "), server.Port()))
}

// addressesOf returns those of a node and of all its pods.
func (s *Space) addressesOf(node string) (all []string, err error) {
	n, err := s.Client.CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	pods, err := s.Client.CoreV1().Pods("").List(s.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		if p.Status.PodIP != "" && !p.Spec.HostNetwork {
			all = append(all, p.Status.PodIP)
		}
	}
	return all, nil
}

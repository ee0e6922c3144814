package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// apiTable belongs to the process that gives it to the packet filter, and goes with it.
const apiTable = `table ip e2e-api { flags owner; chain in { type filter hook input priority 0; ip saddr { %s } tcp dport %s drop; }; }`

// CutAPI has all packets lost that a node of its own kernel, and its pods, send to the API server, and returns what lets
// them through again. All else of its network works. The end of the test, however it ends, lets them through if the test
// has not.
func (s *Space) CutAPI(node string) (mend func()) {
	s.t.Helper()
	s.NeedMachines("to cut a node from the API server")
	server := check.Got(url.Parse(s.config.Host))(s.t)
	from := check.Got(s.addressesOf(node))(s.t)
	inNetwork := []string{fmt.Sprintf("--net=/proc/%d/ns/net", s.pidOf("kube-apiserver")), "nft"}
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), "nsenter", append(inNetwork, "--interactive")...)
	rules, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	check.OK(s.t, err)
	ended := sync.OnceValue(func() error { return errors.Join(rules.Close(), cmd.Wait()) })
	s.t.Cleanup(func() { check.Report(s.t, ended()) })
	check.Got(io.WriteString(rules, fmt.Sprintf(apiTable, strings.Join(from, ", "), server.Port())+"\n"))(s.t)
	s.Eventually(s.t.Context(), "the packet filter to have the rules", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "nsenter", append(inNetwork, "list", "table", "ip", "e2e-api")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return func() {
		s.t.Helper()
		check.OK(s.t, ended())
	}
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

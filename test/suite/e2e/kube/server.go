package kube

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Serve makes an NFSServer with a spec on a node, and waits until it serves.
func (s *Space) Serve(name, node string, spec map[string]any) (pod string) {
	s.t.Helper()
	return s.ServeOnAny(name, []string{node}, spec)
}

// ServeOnAny makes an NFSServer that may be on any of some nodes.
func (s *Space) ServeOnAny(name string, nodes []string, spec map[string]any) (pod string) {
	s.t.Helper()
	s.AllowServers()
	spec["nodeSelectorTerms"] = NodeTerms(nodes...)
	servers := s.Holdfast("nfsservers").Namespace(s.Namespace)
	server := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "holdfast.dev/v1beta1", "kind": "NFSServer", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	check.Got(servers.Create(s.t.Context(), server, metav1.CreateOptions{}))(s.t)
	AwaitOne(s, servers, name, "to serve", Serves)
	return "nfs-" + name + "-0"
}

// NodeTerms choose some nodes.
func NodeTerms(nodes ...string) []any {
	var names []any
	for _, node := range nodes {
		names = append(names, node)
	}
	return []any{map[string]any{"matchExpressions": []any{
		map[string]any{"key": corev1.LabelHostname, "operator": "In", "values": names},
	}}}
}

// AllowServers in the namespace, where they mount volumes, and end them before it.
func (s *Space) AllowServers() {
	s.t.Helper()
	s.AllowPrivileged()
	s.allow(s.t.Context(), "namespaces", true)
	s.BeforeEnd(s.EndServers)
	s.BeforeEnd(func(ctx context.Context) error { s.allow(ctx, "namespaces", false); return nil })
	server := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "holdfast.dev/v1beta1", "kind": "NFSServer", "metadata": map[string]any{"name": "asked-for"},
		"spec": map[string]any{"storage": map[string]any{"size": "1Gi"}},
	}}
	s.Eventually(s.t.Context(), "NFS servers being allowed", func(ctx context.Context) error {
		_, err := s.Holdfast("nfsservers").Namespace(s.Namespace).Create(ctx, server, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// AllowNFSMounts lets the pods of the namespace mount NFS without a claim.
func (s *Space) AllowNFSMounts() {
	s.t.Helper()
	s.allow(s.t.Context(), "inlineVolumeNamespaces", true)
	s.BeforeEnd(func(ctx context.Context) error { s.allow(ctx, "inlineVolumeNamespaces", false); return nil })
	asked := NewPod("asked", s.Home, MountNFS("192.0.2.1", "/", "/data"))
	s.Eventually(s.t.Context(), "mounts of NFS being allowed", func(ctx context.Context) error {
		_, err := s.Client.CoreV1().Pods(s.Namespace).Create(ctx, asked, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// allow writes a list of namespaces of spec.nfs of the StorageCluster.
func (s *Space) allow(ctx context.Context, list string, allow bool) {
	s.t.Helper()
	clusters := s.Holdfast("storageclusters")
	s.Eventually(ctx, "spec.nfs."+list+" of the StorageCluster", func(ctx context.Context) error {
		all, err := clusters.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(all.Items) == 0 {
			return errors.Join(err, errors.New("there is no StorageCluster"))
		}
		c := &all.Items[0]
		names, _, err := unstructured.NestedStringSlice(c.Object, "spec", "nfs", list)
		if err != nil || slices.Contains(names, s.Namespace) == allow {
			return err
		}
		if names = slices.DeleteFunc(names, func(name string) bool { return name == s.Namespace }); allow {
			names = append(names, s.Namespace)
		}
		if err := unstructured.SetNestedStringSlice(c.Object, names, "spec", "nfs", list); err != nil {
			return err
		}
		_, err = clusters.Update(ctx, c, metav1.UpdateOptions{})
		return err
	})
}

// Serves says whether an NFSServer does.
func Serves(server *unstructured.Unstructured) (bool, error) {
	phase, _, err := unstructured.NestedString(server.Object, "status", "phase")
	return phase == "Running", err
}

// EndServerOn ends an NFS server that keeps its volumes in a claim which the test made, and all that uses the server. The
// claim is there to the end: the data of a server whose claim goes first is kept.
func (s *Space) EndServerOn(ctx context.Context, claim, server string) error {
	return s.endServers(ctx, metav1.ListOptions{LabelSelector: noComponent, FieldSelector: "metadata.name!=" + claim}, Named(server))
}

// EndServers ends all NFS servers of the namespace, and before them what uses them.
func (s *Space) EndServers(ctx context.Context) error {
	return s.endServers(ctx, metav1.ListOptions{LabelSelector: noComponent}, metav1.ListOptions{})
}

// noComponent selects what is not a part of Holdfast.
const noComponent = "!app.kubernetes.io/component"

// endServers ends what uses the servers, and then the servers: without them a kubelet could not unmount what it has mounted.
func (s *Space) endServers(ctx context.Context, users, selected metav1.ListOptions) error {
	pods, servers := s.Client.CoreV1().Pods(s.Namespace), s.Holdfast("nfsservers").Namespace(s.Namespace)
	if err := s.Discard(ctx, users); err != nil {
		return err
	}
	if err := ended(ctx, s.Cluster, pods, users, every); err != nil {
		return err
	}
	if err := servers.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		return err
	}
	return ended(ctx, s.Cluster, servers, selected, every)
}

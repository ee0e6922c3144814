package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// What identifies volumes of Holdfast.
const (
	csiDriver           = "csi.holdfast.dev"
	externalProvisioner = "nfs.holdfast.dev"
	provisionedBy       = "pv.kubernetes.io/provisioned-by"
)

// survey finds all that uses volumes. It reads everything from the API server: upgrades are rare, and a cache of all pods
// of a cluster is large.
type survey struct {
	client kubernetes.Interface
	// namespace of Holdfast, whose pods are no applications.
	namespace string
	// servers are the StatefulSets of NFS servers, which are none either: their clients write to them until they end.
	servers []types.NamespacedName

	claims map[types.NamespacedName]bool // bound to our volumes
	found  applications
}

func (s *survey) look(ctx context.Context) (applications, error) {
	if err := s.findClaims(ctx); err != nil {
		return s.found, err
	}
	all, err := s.workloads(ctx)
	if err != nil {
		return s.found, err
	}
	if err := s.findPods(ctx); err != nil {
		return s.found, err
	}
	for _, w := range all {
		switch {
		case w.before != "":
			s.found.stopped = append(s.found.stopped, w.application)
			if w.replicas > 0 && s.uses(w) { // a user has started it again
				s.found.running = append(s.found.running, w.application)
			}
		case w.replicas > 0 && s.uses(w):
			s.found.running = append(s.found.running, w.application)
		}
	}
	slices.Sort(s.found.blockers)
	slices.Sort(s.found.pods)
	return s.found, nil
}

func (s *survey) findClaims(ctx context.Context) error {
	volumes, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.claims = map[types.NamespacedName]bool{}
	for _, v := range volumes.Items {
		ours := v.Spec.CSI != nil && v.Spec.CSI.Driver == csiDriver || v.Annotations[provisionedBy] == externalProvisioner
		if claim := v.Spec.ClaimRef; ours && claim != nil {
			s.claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = true
		}
	}
	return nil
}

// findPods finds the pods that use volumes, and the owners that cannot be stopped.
func (s *survey) findPods(ctx context.Context) error {
	pods, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		// The volumes of a terminating pod may be in use until the kubelet removes it, in any phase.
		if podstatus.HasEnded(&p) && p.DeletionTimestamp == nil || p.Namespace == s.namespace || s.serves(&p) || !s.mounts(p.Namespace, p.Name, p.Spec.Volumes) {
			continue
		}
		s.found.pods = append(s.found.pods, "pod "+p.Namespace+"/"+p.Name)
		blocker, err := s.blocker(ctx, &p)
		if err != nil {
			return err
		}
		if blocker != "" && !slices.Contains(s.found.blockers, blocker) {
			s.found.blockers = append(s.found.blockers, blocker)
		}
	}
	return nil
}

// serves says whether a pod is that of an NFS server.
func (s *survey) serves(p *core.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && s.isServer(owner.Kind, p.Namespace, owner.Name)
}

func (s *survey) isServer(kind, namespace, name string) bool {
	return kind == "StatefulSet" && slices.Contains(s.servers, types.NamespacedName{Namespace: namespace, Name: name})
}

// mounts says whether a pod has a volume of Holdfast.
func (s *survey) mounts(namespace, pod string, volumes []core.Volume) bool {
	return slices.ContainsFunc(volumes, func(v core.Volume) bool {
		claim := types.NamespacedName{Namespace: namespace}
		switch {
		case v.CSI != nil:
			return v.CSI.Driver == csiDriver
		case v.PersistentVolumeClaim != nil:
			claim.Name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			claim.Name = pod + "-" + v.Name
		}
		return s.claims[claim]
	})
}

// blocker names the owner of a pod if that is neither a Deployment nor a StatefulSet.
func (s *survey) blocker(ctx context.Context, p *core.Pod) (string, error) {
	owner := metav1.GetControllerOf(p)
	switch {
	case p.DeletionTimestamp != nil:
		return "", nil
	case owner == nil:
		return "pod " + p.Namespace + "/" + p.Name, nil
	case owner.Kind == "StatefulSet" && strings.HasPrefix(owner.APIVersion, "apps/"):
		return "", nil
	case owner.Kind == "ReplicaSet" && strings.HasPrefix(owner.APIVersion, "apps/"):
		set, err := kube.Live(ctx, s.client.AppsV1().ReplicaSets(p.Namespace).Get, owner.Name)
		if err != nil || set == nil { // without it, its pods follow
			return "", err
		}
		if above := metav1.GetControllerOf(set); above != nil && above.Kind == "Deployment" {
			return "", nil
		}
	}
	return fmt.Sprintf("%s %s/%s", owner.Kind, p.Namespace, owner.Name), nil
}

// workloadSpec is an application with the fields that show its volumes.
type workloadSpec struct {
	application
	volumes   []core.Volume
	templates []core.PersistentVolumeClaim
}

// uses says whether an application has, or would have, pods that use volumes of Holdfast.
func (s *survey) uses(w workloadSpec) bool {
	// The claim of an ephemeral volume is named after its pod, whose name begins like that of its application.
	ephemeral := func(v core.Volume) bool {
		return v.Ephemeral != nil && s.anyClaim(w.namespace, func(name string) bool {
			return strings.HasPrefix(name, w.name+"-") && strings.HasSuffix(name, "-"+v.Name)
		})
	}
	return s.mounts(w.namespace, w.name, w.volumes) || slices.ContainsFunc(w.volumes, ephemeral) ||
		slices.ContainsFunc(w.templates, func(t core.PersistentVolumeClaim) bool {
			return s.anyClaim(w.namespace, func(name string) bool {
				ordinal, found := strings.CutPrefix(name, t.Name+"-"+w.name+"-")
				_, err := strconv.Atoi(ordinal)
				return found && err == nil
			})
		})
}

func (s *survey) anyClaim(namespace string, matches func(string) bool) bool {
	for claim := range s.claims {
		if claim.Namespace == namespace && matches(claim.Name) {
			return true
		}
	}
	return false
}

func (s *survey) workloads(ctx context.Context) (all []workloadSpec, err error) {
	deployments, err := s.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, d := range deployments.Items {
		all = append(all, workloadSpec{application: applicationOf("Deployment", &d, d.Spec.Replicas), volumes: d.Spec.Template.Spec.Volumes})
	}
	sets, err := s.client.AppsV1().StatefulSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, d := range sets.Items {
		all = append(all, workloadSpec{
			application: applicationOf("StatefulSet", &d, d.Spec.Replicas), volumes: d.Spec.Template.Spec.Volumes, templates: d.Spec.VolumeClaimTemplates,
		})
	}
	return slices.DeleteFunc(all, func(w workloadSpec) bool {
		return w.namespace == s.namespace || s.isServer(w.kind, w.namespace, w.name)
	}), nil
}

func applicationOf(kind string, o metav1.Object, replicas *int32) application {
	before := o.GetAnnotations()[v1beta1.ReplicasAnnotation]
	if n, err := strconv.ParseInt(before, 10, 32); err != nil || n < 0 {
		before = "" // no upgrade writes that
	}
	return application{
		kind: kind, namespace: o.GetNamespace(), name: o.GetName(), version: o.GetResourceVersion(),
		replicas: ptr.Deref(replicas, 1), before: before,
	}
}

// stop records the replicas of an application and scales it to 0, in one write.
func stop(ctx context.Context, client kubernetes.Interface, a application) error {
	return scale(ctx, client, a, new(strconv.Itoa(int(a.replicas))), 0)
}

// start restores the replicas of an application, unless a user has scaled it up.
func start(ctx context.Context, client kubernetes.Interface, a application) error {
	before, err := strconv.ParseInt(a.before, 10, 32)
	if err != nil {
		return fmt.Errorf("%s: annotation %s: %w", a, v1beta1.ReplicasAnnotation, err)
	}
	replicas := a.replicas
	if replicas == 0 {
		replicas = int32(before)
	}
	return scale(ctx, client, a, nil, replicas)
}

func scale(ctx context.Context, client kubernetes.Interface, a application, annotation *string, replicas int32) error {
	change := map[string]any{
		"metadata": map[string]any{"resourceVersion": a.version, "annotations": map[string]any{v1beta1.ReplicasAnnotation: annotation}},
		"spec":     map[string]any{"replicas": replicas},
	}
	var err error
	if a.kind == "StatefulSet" {
		_, err = kube.MergePatch(ctx, client.AppsV1().StatefulSets(a.namespace).Patch, a.name, change, component)
	} else {
		_, err = kube.MergePatch(ctx, client.AppsV1().Deployments(a.namespace).Patch, a.name, change, component)
	}
	if kube.IgnoreGone(err) != nil { // a conflict is retried with the next pass
		return fmt.Errorf("scaling %s to %d: %w", a, replicas, err)
	}
	return nil
}

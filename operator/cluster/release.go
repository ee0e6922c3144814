package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// handingOver is how long the controller of another release has to take over.
const handingOver = 10 * time.Minute

// otherRelease is a release that was installed over this one.
type otherRelease struct {
	version string
	seen    time.Time
}

// controllerRefs are the possible workloads of the controller, of which one exists.
func controllerRefs(namespace string) (refs []apply.Ref) {
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		refs = append(refs, apply.RefTo("apps", kind, namespace, v1beta1.ControllerName))
	}
	return refs
}

// installedOver returns the release whose manifest was just applied over this one; "" if there is none.
func (r *Controller) installedOver(c *v1beta1.StorageCluster) string {
	for _, ref := range controllerRefs(r.Namespace) {
		if o := r.Owned.Get(ref); o != nil {
			if version := r.manifestOf(c, o); version != "" {
				return version
			}
		}
	}
	return ""
}

// manifestOf returns the other release whose manifest was applied to the controller's workload. Only a manifest changes
// both the label and the image.
func (r *Controller) manifestOf(c *v1beta1.StorageCluster, workload *unstructured.Unstructured) string {
	version := workload.GetLabels()[v1beta1.VersionLabel]
	if version == deploy.Version || rollout.ReadWorkload(workload).Image == r.Release.Images(c).Holdfast {
		return ""
	}
	return version
}

// spares says whether to leave the controller's workload alone, since another release is to take over. The workload may
// have changed since it was observed. An overwritten release is recorded until the status reports it.
func (r *Controller) spares(c *v1beta1.StorageCluster, workload *unstructured.Unstructured) bool {
	version := r.manifestOf(c, workload)
	if r.otherRelease(c, version) != "" {
		return true
	}
	if version != "" {
		r.overwritten = version
	}
	return false
}

// otherRelease returns the release that was installed over this one if it is to take over; repairing the controller's
// workload would revert it. It does not count if it does not lead in time, or if the spec names another image.
func (r *Controller) otherRelease(c *v1beta1.StorageCluster, version string) string {
	if version == "" || c.Spec.Images.Holdfast != "" {
		return ""
	}
	if r.other.version != version {
		r.other = otherRelease{version: version, seen: time.Now()}
		r.Log.Info("another release was installed; this one makes no more changes", "release", version)
	}
	if time.Since(r.other.seen) < handingOver {
		return version
	}
	return ""
}

// unpin removes the image that a StorageUpgrade alone has written into the spec, once the manifest of the release that runs
// was applied, so that the next manifest counts again. Builds without a version all have the same.
func (r *Controller) unpin(ctx context.Context, c *v1beta1.StorageCluster) (*v1beta1.StorageCluster, error) {
	image := c.Spec.Images.Holdfast
	if image == "" || c.Annotations[v1beta1.UpgradedAnnotation] != string(image) || deploy.Version == deploy.DevelopmentTag {
		return c, nil
	}
	without := c.DeepCopy()
	without.Spec.Images.Holdfast = ""
	isInstalled := func(ref apply.Ref) bool {
		o := r.Owned.Get(ref)
		return o != nil && o.GetAnnotations()[v1beta1.ManifestAnnotation] == deploy.Version
	}
	if r.Release.Images(without).Holdfast != image || !slices.ContainsFunc(controllerRefs(r.Namespace), isInstalled) {
		return c, nil
	}
	clusters := r.Client.HoldfastV1beta1().StorageClusters()
	live, err := clusters.Get(ctx, c.Name, metav1.GetOptions{}) // the cache has not who wrote what
	if err != nil || live.ResourceVersion != c.ResourceVersion || apply.IsOwnedByOther(live, rollout.UpgradeManager, "spec", "images", "holdfast") {
		return c, err
	}
	images := map[string]any{"holdfast": nil}
	if without.Spec.Images == (v1beta1.Images{}) {
		images = nil
	}
	now, err := kube.MergePatch(ctx, clusters.Patch, c.Name, map[string]any{
		"metadata": map[string]any{"resourceVersion": c.ResourceVersion, "annotations": map[string]any{v1beta1.UpgradedAnnotation: nil}},
		"spec":     map[string]any{"images": images},
	}, rollout.UpgradeManager)
	if err != nil {
		return nil, fmt.Errorf("removing spec.images.holdfast, which is %s, as the manifest of %s has it: %w", image, deploy.Version, err)
	}
	r.Log.Info("the manifest of the release that runs was applied: spec.images.holdfast was removed, so that the next manifest updates it", "image", image, "release", deploy.Version)
	r.written.Wrote(now)
	return now, nil
}

// pinned is the part of the message that names the image, to detect when that changes.
func pinned(image v1beta1.Image) string { return fmt.Sprintf("spec.images.holdfast names %s", image) }

// setReleaseIgnored reports that a release was installed that the spec keeps from running, until spec.images changes.
func (s *situation) setReleaseIgnored(next *v1beta1.StorageClusterStatus) {
	image := s.cluster.Spec.Images.Holdfast
	if s.ignored != "" {
		s.set(next, kube.NewCondition(v1beta1.ReleaseIgnoredCondition, true, reasonImagePinned, fmt.Sprintf("the manifest of %s was applied, but %s, which keeps running: "+
			"create a StorageUpgrade to %s, or remove spec.images.holdfast and apply the manifest again", s.ignored, pinned(image), s.ignored)))
		return
	}
	if c := meta.FindStatusCondition(next.Conditions, v1beta1.ReleaseIgnoredCondition); c != nil && (image == "" || !strings.Contains(c.Message, pinned(image)+",")) {
		meta.RemoveStatusCondition(&next.Conditions, v1beta1.ReleaseIgnoredCondition)
	}
}

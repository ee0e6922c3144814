// Package bundle collects what a helper needs to see of a cluster: reports, objects and logs. It has the content of no
// secret, and of claims and PersistentVolumes only those of Holdfast.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/report/doctor"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/report/status"
)

// Config is what is collected, and from where.
type Config struct {
	facts.Clients
	Namespace string // of Holdfast
	Version   string // of this program
	LogLines  int64  // the last ones of each container
	Now       time.Time
}

type writer struct {
	Config
	archive *tar.Writer
	missing []string
	kept    map[string]bool // the objects that others may be about, as KIND NAME or KIND NAMESPACE/NAME
}

// Write writes an archive, compressed by gzip. What could not be read is listed in it, and returned.
func Write(ctx context.Context, out io.Writer, c Config) (missing []string, err error) {
	compressed := gzip.NewWriter(out)
	w := &writer{Config: c, archive: tar.NewWriter(compressed), kept: map[string]bool{}}
	for _, part := range []func(context.Context) error{w.reports, w.objects, w.logs} {
		if err := cmp.Or(part(ctx), ctx.Err()); err != nil {
			return nil, err
		}
	}
	if len(w.kept) == 0 {
		return nil, fmt.Errorf("nothing could be read: %s", strings.Join(w.missing, "; "))
	}
	about := fmt.Sprintf("collected by holdfast %s at %s\nnot read: %d\n%s\n", c.Version, c.Now.UTC().Format(time.RFC3339), len(w.missing), strings.Join(w.missing, "\n"))
	return w.missing, errors.Join(w.file("about.txt", []byte(about)), w.archive.Close(), compressed.Close())
}

func (w *writer) file(name string, content []byte) error {
	header := &tar.Header{Name: "holdfast-support/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: w.Now}
	if err := w.archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.archive.Write(content)
	return err
}

func (w *writer) lacks(what string, err error) {
	w.missing = append(w.missing, fmt.Sprintf("%s: %v", what, err))
}

// reports are those of holdfast status and holdfast doctor.
func (w *writer) reports(ctx context.Context) error {
	found, err := facts.All(ctx, w.Clients, w.Namespace, v1beta1.DriverName)
	if err != nil {
		w.lacks("status.txt and doctor.txt", err)
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(found.Hidden)) {
		w.lacks(kind, found.Hidden[kind])
	}
	var text bytes.Buffer
	if report, err := status.Look(found); err != nil {
		w.lacks("status.txt", err)
	} else if err := errors.Join(report.Text(&text, w.Now, status.Style{All: true}), w.file("status.txt", text.Bytes())); err != nil {
		return err
	}
	text.Reset()
	return errors.Join(doctor.Text(&text, doctor.Examine(found)), w.file("doctor.txt", text.Bytes()))
}

// resource is a kind of objects, and which of them are collected.
type resource struct {
	schema.GroupVersionResource
	namespace, labels string // all if empty
	of                func(*unstructured.Unstructured) bool
}

// ours selects the objects of Holdfast, in any namespace.
const ours = v1beta1.NameLabel + "=" + v1beta1.AppName

// resources are in the order in which one depends on what was read of another.
func (w *writer) resources() (all []resource) {
	add := func(group, version, namespace, labels string, of func(*unstructured.Unstructured) bool, names ...string) {
		for _, name := range names {
			all = append(all, resource{schema.GroupVersionResource{Group: group, Version: version, Resource: name}, namespace, labels, of})
		}
	}
	each := func(*unstructured.Unstructured) bool { return true }
	add(v1beta1.GroupName, v1beta1.SchemeGroupVersion.Version, "", "", each, "storageclusters", "storagenodes", "volumes", "snapshots", "nfsservers", "nodejobs", "storageupgrades")
	add("", "v1", "", ours, each, "pods")
	add("apps", "v1", "", ours, each, "deployments", "statefulsets", "daemonsets")
	add("", "v1", w.Namespace, "", isNamedAsOurs, "configmaps")
	add("coordination.k8s.io", "v1", w.Namespace, "", each, "leases")
	add("storage.k8s.io", "v1", w.Namespace, "", each, "csistoragecapacities")
	add("", "v1", "", "", each, "nodes")
	add("storage.k8s.io", "v1", "", "", each, "csinodes")
	add("storage.k8s.io", "v1", "", "", hasDriver("provisioner"), "storageclasses")
	add("storage.k8s.io", "v1", "", "", hasDriver("spec", "attacher"), "volumeattachments")
	add("snapshot.storage.k8s.io", "v1", "", "", hasDriver("driver"), "volumesnapshotclasses")
	add("snapshot.storage.k8s.io", "v1", "", "", hasDriver("spec", "driver"), "volumesnapshotcontents")
	add("", "v1", "", "", w.isOurVolume, "persistentvolumes")
	add("", "v1", "", "", w.isOurClaim, "persistentvolumeclaims")
	add("", "v1", "", "", w.isOurEvent, "events")
	return all
}

// isNamedAsOurs leaves out what Helm may keep there of a release, with its values.
func isNamedAsOurs(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetName(), "holdfast-")
}

func field(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

func hasDriver(path ...string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		name := field(o, path...)
		return name == v1beta1.DriverName || name == v1beta1.ProvisionerName
	}
}

func (w *writer) isOurVolume(o *unstructured.Unstructured) bool {
	return hasDriver("spec", "csi", "driver")(o) || o.GetAnnotations()[v1beta1.ProvisionedByAnnotation] == v1beta1.ProvisionerName
}

// isOurClaim includes a claim without a volume.
func (w *writer) isOurClaim(o *unstructured.Unstructured) bool {
	return w.kept["PersistentVolume "+field(o, "spec", "volumeName")] || w.kept["StorageClass "+field(o, "spec", "storageClassName")]
}

func (w *writer) isOurEvent(o *unstructured.Unstructured) bool {
	about := field(o, "involvedObject", "kind") + " " + strings.TrimPrefix(field(o, "involvedObject", "namespace")+"/", "/") + field(o, "involvedObject", "name")
	return o.GetNamespace() == w.Namespace || w.kept[about] || strings.HasPrefix(field(o, "involvedObject", "apiVersion"), v1beta1.GroupName+"/")
}

func (w *writer) objects(ctx context.Context) error {
	for _, r := range w.resources() {
		var stream bytes.Buffer
		var broken error
		err := kube.Each(ctx, w.Dynamic.Resource(r.GroupVersionResource).Namespace(r.namespace).List, metav1.ListOptions{LabelSelector: r.labels}, func(o *unstructured.Unstructured) {
			if !r.of(o) {
				return
			}
			w.kept[o.GetKind()+" "+strings.TrimPrefix(o.GetNamespace()+"/", "/")+o.GetName()] = true
			slim(o)
			text, err := yaml.Marshal(o.Object)
			broken = cmp.Or(broken, err)
			stream.WriteString("---\n")
			stream.Write(text)
		})
		if err = cmp.Or(err, broken); err != nil && !apierrors.IsNotFound(err) { // a kind that the cluster does not have
			w.lacks(r.Resource, err)
		}
		if stream.Len() == 0 {
			continue
		}
		if err := w.file("objects/"+r.Resource+".yaml", stream.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// slim removes what is long, and what may be of another program or its secret: annotations but for those of Holdfast and
// Kubernetes, the values of environment variables, and what a node has of others.
func slim(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return key == core.LastAppliedConfigAnnotation || !strings.HasSuffix(domain, v1beta1.GroupName) && !strings.HasSuffix(domain, "kubernetes.io")
	})
	o.SetAnnotations(annotations)
	if o.GetKind() == "Node" {
		for _, of := range []string{"images", "volumesAttached", "volumesInUse"} {
			unstructured.RemoveNestedField(o.Object, "status", of)
		}
	}
	for _, at := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedFieldNoCopy(o.Object, append(slices.Clone(at), list)...)
			all, _ := containers.([]any)
			for _, c := range all {
				variables, _, _ := unstructured.NestedFieldNoCopy(c.(map[string]any), "env")
				values, _ := variables.([]any)
				for _, v := range values {
					delete(v.(map[string]any), "value")
				}
			}
		}
	}
}

func (w *writer) logs(ctx context.Context) error {
	var pods []*core.Pod
	if err := kube.Each(ctx, w.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List, metav1.ListOptions{LabelSelector: ours}, func(p *core.Pod) { pods = append(pods, p) }); err != nil {
		w.lacks("logs", err)
	}
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if err := w.log(ctx, p, c.Name, false); err != nil {
				return err
			}
			if c.RestartCount == 0 {
				continue
			}
			if err := w.log(ctx, p, c.Name, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) log(ctx context.Context, p *core.Pod, container string, previous bool) error {
	name := "logs/" + p.Namespace + "/" + p.Name + "/" + container
	if previous {
		name += ".previous"
	}
	text, err := w.Kubernetes.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &core.PodLogOptions{Container: container, Previous: previous, TailLines: &w.LogLines}).DoRaw(ctx)
	if err != nil {
		w.lacks(name, err)
		return nil
	}
	return w.file(name+".log", text)
}

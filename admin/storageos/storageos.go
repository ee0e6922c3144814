// Package storageos converts a StorageOSCluster into a StorageCluster, with a remark about each field.
package storageos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Group and Kind of the input.
const (
	Group = "storageos.com"
	Kind  = "StorageOSCluster"
)

// Verdict is the result for a field.
type Verdict string

const (
	Taken     Verdict = "taken as"
	NoMeaning Verdict = "has no meaning here"
	ByHand    Verdict = "must be done by hand"
	Unknown   Verdict = "is no field of a StorageOSCluster"
)

// Remark is the result for a field, and the reason.
type Remark struct {
	Field   string
	Verdict Verdict
	Text    string // the target, the reason, or what to do
}

func (r Remark) String() string {
	if r.Verdict == Taken {
		return fmt.Sprintf("%s: %s %s", r.Field, r.Verdict, r.Text)
	}
	return fmt.Sprintf("%s: %s: %s", r.Field, r.Verdict, r.Text)
}

// Convert converts a StorageOSCluster. It returns a remark for each field in it, in the order of the documentation. An
// error names every value that is invalid.
func Convert(manifest map[string]any) (*v1beta1.StorageCluster, []Remark, error) {
	version, _ := manifest["apiVersion"].(string)
	if group, _, _ := strings.Cut(version, "/"); manifest["kind"] != Kind || group != Group {
		return nil, nil, fmt.Errorf("this has the kind %v and the apiVersion %q; it must be a %s of %s/v1", manifest["kind"], version, Kind, Group)
	}
	c := &conversion{cluster: &cluster{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "StorageCluster"}}}
	left := map[string]any{}
	flatten("", manifest, left)
	delete(left, "kind")
	delete(left, "apiVersion")
	for _, f := range fields {
		value, given := left[f.path]
		if !given {
			continue
		}
		delete(left, f.path)
		c.at = f.path
		f.take(c, value)
	}
	for _, path := range slices.Sorted(maps.Keys(left)) {
		c.at = path
		if slices.Contains(groups, path) {
			c.faultf("%v: it must have fields below it", left[path])
			continue
		}
		c.remarkf(Unknown, "it is not converted; check the spelling")
	}
	c.conclude()
	if len(c.faults) > 0 {
		return nil, nil, errors.Join(c.faults...)
	}
	return c.cluster, c.remarks, nil
}

// groups are the fields with subfields. All others are converted as a whole.
var groups = []string{"metadata", "spec", "spec.csi", "spec.service", "spec.ingress", "spec.images", "spec.kvBackend"}

// flatten returns the fields by path. Null fields count as not given.
func flatten(path string, value any, into map[string]any) {
	below, isMap := value.(map[string]any)
	switch {
	case value == nil:
	case isMap && (path == "" || slices.Contains(groups, path)):
		for name, v := range below {
			flatten(strings.TrimPrefix(path+"."+name, "."), v, into)
		}
	default:
		into[path] = value
	}
}

type cluster = v1beta1.StorageCluster

type conversion struct {
	cluster *cluster
	remarks []Remark
	faults  []error
	at      string // current field
}

func (c *conversion) remarkf(verdict Verdict, format string, args ...any) {
	c.remarks = append(c.remarks, Remark{c.at, verdict, fmt.Sprintf(format, args...)})
}

func (c *conversion) faultf(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s: %s", c.at, fmt.Sprintf(format, args...)))
}

// conclude adds remarks that depend on several fields, and on defaults of StorageOS.
func (c *conversion) conclude() {
	spec := &c.cluster.Spec
	if c.cluster.Name == "" {
		c.cluster.Name = "holdfast"
	}
	if ref := spec.SecretRef; ref != nil && ref.Name == "" {
		spec.SecretRef = nil
		c.at = "spec.secretRefNamespace"
		c.remarkf(ByHand, "without spec.secretRefName it names nothing, so it is left out; name a secret in spec.secretRef")
	}
	if len(spec.StorageClasses) == 0 {
		c.at = "spec.storageClassName"
		c.remarkf(ByHand, "it is not given, which meant a class named fast; Holdfast makes one named holdfast, the default class. For claims that name fast, add it to spec.storageClasses")
	}
	if spec.Ingress.Enabled && spec.Ingress.Host == "" {
		spec.Ingress.Host = "storageos.local"
		c.at = "spec.ingress.hostname"
		c.remarkf(ByHand, "it is not given, which meant storageos.local, and so it is written; replace it with the name that users use")
	}
	if len(c.faults) > 0 {
		return
	}
	if _, err := render.Objects(render.Input{Cluster: c.cluster, Namespace: deploy.Namespace, Secret: everyKey}); err != nil {
		c.at = "the StorageCluster"
		c.remarkf(ByHand, "Holdfast refuses the result, so change it before you apply it: %v", err)
	}
}

// everyKey is a secret with all keys; only the keys are checked.
var everyKey = map[string][]byte{
	"tls.crt": {1}, "tls.key": {1},
	"csiProvisionUsername": {1}, "csiProvisionPassword": {1},
	"csiControllerPublishUsername": {1}, "csiControllerPublishPassword": {1},
	"csiNodePublishUsername": {1}, "csiNodePublishPassword": {1},
	"csiControllerExpandUsername": {1}, "csiControllerExpandPassword": {1},
}

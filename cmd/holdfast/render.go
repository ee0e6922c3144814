package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/admin/storageos"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
)

var renderCommand = command{
	name:    "render",
	summary: "Print the objects that follow from a StorageCluster, or make one from a StorageOSCluster",
	text: `
It asks no cluster and changes none. Without a file it prints what the default StorageCluster becomes.

  holdfast render
  holdfast render -f storagecluster.yaml --has VolumeSnapshotClass,PodMonitor
  kubectl get storageoscluster production -o yaml | holdfast render --from-storageos - >storagecluster.yaml

From a StorageOSCluster comes a StorageCluster. What became of each field is told on standard error.
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		r := &renderer{remarks: os.Stderr}
		flags.StringVar(&r.file, "f", "", "`file` with a StorageCluster; - is the standard input")
		flags.StringVar(&r.storageos, "from-storageos", "", "`file` with a StorageOSCluster to make a StorageCluster of; - is the standard input")
		flags.StringVar(&r.secret, "secret", "", "`file` with the Secret that spec.secretRef names, where something is made of it")
		flags.StringVar(&r.has, "has", "VolumeSnapshotClass,VolumeGroupSnapshotClass,ValidatingAdmissionPolicy,ValidatingAdmissionPolicyBinding", "the optional `kinds` that the cluster has: of "+strings.Join(optionalKinds(), ", "))
		flags.StringVar(&r.namespace, "namespace", deploy.Namespace, "`namespace` in which Holdfast runs")
		return r.run
	},
}

type renderer struct {
	file, storageos, secret, has, namespace string
	remarks                                 io.Writer
}

func (r *renderer) run(_ context.Context, out io.Writer) error {
	if r.storageos != "" {
		if r.file != "" || r.secret != "" {
			return fmt.Errorf("--from-storageos stands alone; what it makes can be given to -f: %w", errUsage)
		}
		return r.convert(out)
	}
	in := render.Input{
		Cluster:   &v1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}},
		Namespace: r.namespace, Release: render.NewRelease("", os.Getenv),
	}
	var err error
	if in.Has, err = hasKinds(r.has); err != nil {
		return err
	}
	if r.file != "" {
		if in.Cluster, err = readCluster(r.file); err != nil {
			return err
		}
	}
	if r.secret != "" {
		secret, err := readKind[core.Secret](r.secret, "v1", "Secret")
		if err != nil {
			return err
		}
		in.Secret = secretData(secret)
	}
	objects, err := render.Objects(in)
	if err != nil {
		return err
	}
	for i, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) convert(out io.Writer) error {
	manifest, err := readManifest(r.storageos)
	if err != nil {
		return err
	}
	cluster, remarks, err := storageos.Convert(manifest)
	if err != nil {
		return fmt.Errorf("%s: %w", r.storageos, err)
	}
	for _, remark := range remarks {
		fmt.Fprintln(r.remarks, remark)
	}
	text, err := yaml.Marshal(cluster)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// strictCluster is without the method that decodes what can be decoded: of a file all must be.
type strictCluster v1.StorageCluster

func readCluster(path string) (*v1.StorageCluster, error) {
	c, err := readKind[strictCluster](path, v1.SchemeGroupVersion.String(), "StorageCluster")
	return (*v1.StorageCluster)(c), err
}

func readKind[T any](path, version, kind string) (*T, error) {
	manifest, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	return asKind[T](path, manifest, version, kind)
}

// secretData is what the API server makes of a Secret in a file.
func secretData(s *core.Secret) map[string][]byte {
	data := map[string][]byte{}
	maps.Copy(data, s.Data)
	for key, value := range s.StringData {
		data[key] = []byte(value)
	}
	return data
}

// optional are the kinds that not every cluster has.
var optional = []schema.GroupKind{
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"},
	{Group: "groupsnapshot.storage.k8s.io", Kind: "VolumeGroupSnapshotClass"},
	{Group: "monitoring.coreos.com", Kind: "PodMonitor"},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "security.openshift.io", Kind: "SecurityContextConstraints"},
}

func optionalKinds() (names []string) {
	for _, k := range optional {
		names = append(names, k.Kind)
	}
	return names
}

func hasKinds(list string) (func(schema.GroupKind) bool, error) {
	given := map[schema.GroupKind]bool{}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		found := word == ""
		for _, k := range optional {
			if k.Kind == word {
				given[k], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("--has: %q is not one of %s: %w", word, strings.Join(optionalKinds(), ", "), errUsage)
		}
	}
	return func(k schema.GroupKind) bool { return given[k] }, nil
}

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/admin/storageos"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/printable"
)

func newRenderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the objects that follow from a StorageCluster, or make one from a StorageOSCluster",
		Long: `It contacts no cluster. Without a file it prints the objects of the default StorageCluster.

A StorageOSCluster is converted to a StorageCluster. How each field was converted is printed on standard error.`,
		Example: `  holdfast render
  holdfast render -f storagecluster.yaml --has VolumeSnapshotClass,PodMonitor
  kubectl get storageoscluster production -o yaml | holdfast render --from-storageos - >storagecluster.yaml`,
	}
	flags := cmd.Flags()
	r := &renderer{remarks: os.Stderr, output: outputFlag(cmd, "yaml", "json", "name")}
	flags.StringVarP(&r.file, "filename", "f", "", "`file` with a StorageCluster; - is the standard input")
	flags.StringVar(&r.storageos, "from-storageos", "", "`file` with a StorageOSCluster to make a StorageCluster of; - is the standard input")
	flags.StringVar(&r.secret, "secret", "", "`file` with the Secret that spec.secretRef names, if it is needed")
	flags.StringVar(&r.has, "has", "VolumeSnapshotClass,VolumeGroupSnapshotClass,ValidatingAdmissionPolicy,ValidatingAdmissionPolicyBinding,FlowSchema", "the optional `kinds` that the cluster has: of "+strings.Join(optionalKinds(), ", "))
	namespaceFlag(flags, &r.namespace)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.storageos != "" {
			if err := refuseGiven(flags, "has no effect with --from-storageos; its output can be given to -f", "filename", "secret", "has", "namespace"); err != nil {
				return err
			}
		}
		return r.run(cmd.OutOrStdout())
	}
	return cmd
}

type renderer struct {
	file, storageos, secret, has, namespace string
	remarks                                 io.Writer
	output                                  *output
}

func (r *renderer) run(out io.Writer) error {
	if r.storageos != "" {
		return r.convert(out)
	}
	in := render.Input{
		Cluster:   &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}},
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
	return r.write(out, objects)
}

// write writes a list as JSON, and documents as YAML, as kubectl apply takes both.
func (r *renderer) write(out io.Writer, objects []*unstructured.Unstructured) error {
	if r.output.value == "json" {
		return r.output.print(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, nil)
	}
	for i, o := range objects {
		if r.output.value == "name" {
			if err := printName(out, o.GroupVersionKind().GroupKind(), o.GetName()); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(out, documentSeparator)
		}
		if err := printYAML(out, o.Object); err != nil {
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
		fmt.Fprintln(r.remarks, printable.Line(remark.String()))
	}
	if r.output.value == "name" {
		return printName(out, v1beta1.SchemeGroupVersion.WithKind("StorageCluster").GroupKind(), cluster.Name)
	}
	return r.output.print(out, cluster, nil)
}

// strictCluster lacks the lenient UnmarshalJSON: every field of a file must be valid.
type strictCluster v1beta1.StorageCluster

func readCluster(path string) (*v1beta1.StorageCluster, error) {
	c, err := readKind[strictCluster](path, v1beta1.SchemeGroupVersion.String(), "StorageCluster")
	return (*v1beta1.StorageCluster)(c), err
}

// secretData is the data of a Secret in a file, as the API server would store it.
func secretData(s *core.Secret) map[string][]byte {
	data := map[string][]byte{}
	maps.Copy(data, s.Data)
	for key, value := range s.StringData {
		data[key] = []byte(value)
	}
	return data
}

var optional = []schema.GroupKind{
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"},
	{Group: "groupsnapshot.storage.k8s.io", Kind: "VolumeGroupSnapshotClass"},
	{Group: "monitoring.coreos.com", Kind: "PodMonitor"},
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"},
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

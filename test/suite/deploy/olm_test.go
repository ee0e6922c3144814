package deploy

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/crds"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const bundle = "deploy/olm/bundle/"

// service is a ClusterServiceVersion, as far as the bundle has one: a field that is not here is not taken.
type service struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Version        string              `json:"version"`
		DisplayName    string              `json:"displayName"`
		Description    string              `json:"description"`
		Keywords       []string            `json:"keywords"`
		Maturity       string              `json:"maturity"`
		MinKubeVersion string              `json:"minKubeVersion"`
		Provider       map[string]string   `json:"provider"`
		Maintainers    []map[string]string `json:"maintainers"`
		Links          []map[string]string `json:"links"`
		InstallModes   []struct {
			Type      string `json:"type"`
			Supported bool   `json:"supported"`
		} `json:"installModes"`
		Kinds struct {
			Owned []ownedKind `json:"owned"`
		} `json:"customresourcedefinitions"`
		Install struct {
			Strategy string `json:"strategy"`
			Spec     struct {
				Deployments []struct {
					Name  string              `json:"name"`
					Label map[string]string   `json:"label"`
					Spec  apps.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
				ClusterPermissions []permission `json:"clusterPermissions"`
				Permissions        []permission `json:"permissions"`
			} `json:"spec"`
		} `json:"install"`
		Icon []struct {
			Data []byte `json:"base64data"`
			Type string `json:"mediatype"`
		} `json:"icon"`
		RelatedImages []map[string]string `json:"relatedImages"`
	} `json:"spec"`
}

type ownedKind struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Kind        string `json:"kind"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

type permission struct {
	Account string            `json:"serviceAccountName"`
	Rules   []rbac.PolicyRule `json:"rules"`
}

func bundled(t *testing.T) service {
	t.Helper()
	var s service
	if err := yaml.UnmarshalStrict([]byte(read(t, bundle+"manifests/holdfast.clusterserviceversion.yaml")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// examples are the objects that the bundle shows.
func examples(t *testing.T) Objects {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(bundled(t).Annotations["alm-examples"]), &list); err != nil {
		t.Fatal(err)
	}
	all := Objects{}
	for _, content := range list {
		o := &unstructured.Unstructured{Object: content}
		all[keyOf(o)] = o
	}
	return all
}

func TestBundle_InstallsWhatTheManifestInstalls(t *testing.T) {
	manifest, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	install := bundled(t).Spec.Install
	if install.Strategy != "deployment" || len(install.Spec.Deployments) != 1 {
		t.Fatalf("it installs by %+v", install)
	}
	want := &apps.Deployment{}
	convert(t, manifest["Deployment "+namespace+"/holdfast-controller"], want)
	got := install.Spec.Deployments[0]
	setImages(&want.Spec.Template.Spec.Containers[0], bundled(t).Spec.RelatedImages)
	if got.Name != want.Name || !maps.Equal(got.Label, want.Labels) || !equal(t, got.Spec, want.Spec) {
		t.Errorf("the Deployment is %+v", got)
	}
	for key, permissions := range map[string][]permission{"ClusterRole holdfast-controller": install.Spec.ClusterPermissions, "Role " + namespace + "/holdfast-controller": install.Spec.Permissions} {
		role := &rbac.ClusterRole{}
		convert(t, manifest[key], role)
		if len(permissions) != 1 || permissions[0].Account != want.Spec.Template.Spec.ServiceAccountName || !equal(t, permissions[0].Rules, role.Rules) {
			t.Errorf("the rights of %s are %+v", key, permissions)
		}
	}
}

// setImages names the images in the environment, where a bundle has them for administrators who mirror them.
func setImages(c *core.Container, images []map[string]string) {
	for _, image := range images {
		c.Env = append(c.Env, core.EnvVar{
			Name: "RELATED_IMAGE_" + strings.ToUpper(strings.ReplaceAll(image["name"], "-", "_")), Value: image["image"],
		})
	}
}

func TestBundle_OperatorReadsItsImagesFromTheEnvironment(t *testing.T) {
	var program core.Container
	setImages(&program, bundled(t).Spec.RelatedImages)
	for _, e := range program.Env {
		t.Setenv(e.Name, "mirror.example/"+strings.TrimPrefix(e.Name, "RELATED_IMAGE_"))
	}
	all := operated(t, map[string]any{"cluster": map[string]any{"csi": map[string]any{"attachRequired": true}}}, nil)
	for _, c := range containers(t, all) {
		if !strings.HasPrefix(c.Image, "mirror.example/") {
			t.Errorf("container %s has the image %s", c.Name, c.Image)
		}
	}
}

func equal(t *testing.T, a, b any) bool {
	t.Helper()
	first, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(first) == string(second)
}

// broughtByTheOperator is the kind that the bundle must not own: a user with the role edit or admin in a namespace could
// make objects of it, by roles that the Operator Lifecycle Manager makes for all kinds that a bundle owns.
const broughtByTheOperator = "nfsservers.holdfast.dev"

func TestBundle_GrantsNFSServersToNoUserDirectlyOrByAggregation(t *testing.T) {
	for _, kind := range bundled(t).Spec.Kinds.Owned {
		if kind.Name == broughtByTheOperator {
			t.Errorf("the bundle owns %s", kind.Name)
		}
	}
	for _, file := range []string{"deploy", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, file), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), "aggregate-to-") {
				t.Errorf("%s aggregates rights to roles of others", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestBundle_HasEveryKind(t *testing.T) {
	manifest, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, object := range manifest {
		if object.GetKind() == "CustomResourceDefinition" && object.GetName() != broughtByTheOperator {
			want = append(want, object.GetName())
		}
	}
	for _, kind := range bundled(t).Spec.Kinds.Owned {
		got = append(got, kind.Name)
		if kind.Version != "v1beta1" || kind.Kind == "" || kind.DisplayName == "" || kind.Description == "" {
			t.Errorf("little is said of %+v", kind)
		}
		plural, _, _ := strings.Cut(kind.Name, ".")
		file := "/holdfast.dev_" + plural + ".yaml"
		if read(t, bundle+"manifests"+file) != read(t, "deploy/crds"+file) {
			t.Errorf("%s is another", file)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) || len(got) < 6 {
		t.Errorf("it has %v, not %v", got, want)
	}
	files, err := os.ReadDir(filepath.Join(root, bundle, "manifests"))
	if err != nil || len(files) != len(got)+1 {
		t.Errorf("beside them there are %v %v", files, err)
	}
}

func TestBundle_CanBePublished(t *testing.T) {
	s := bundled(t)
	if s.Kind != "ClusterServiceVersion" || s.APIVersion != "operators.coreos.com/v1alpha1" || s.Name != "holdfast.v"+s.Spec.Version {
		t.Errorf("it is %s %s %s of version %s", s.APIVersion, s.Kind, s.Name, s.Spec.Version)
	}
	semantic := regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	if !semantic.MatchString(s.Spec.Version) || s.Spec.Version != loaded(t).Metadata.Version || !semantic.MatchString(s.Spec.MinKubeVersion) {
		t.Errorf("the versions are %q, of Kubernetes %q, and of the chart %q", s.Spec.Version, s.Spec.MinKubeVersion, loaded(t).Metadata.Version)
	}
	modes := map[string]bool{}
	for _, mode := range s.Spec.InstallModes {
		modes[mode.Type] = mode.Supported
	}
	if !maps.Equal(modes, map[string]bool{"OwnNamespace": false, "SingleNamespace": false, "MultiNamespace": false, "AllNamespaces": true}) {
		t.Errorf("it is installed as %v", modes)
	}
	if len(s.Spec.Icon) != 1 || s.Spec.Icon[0].Type != "image/svg+xml" || string(s.Spec.Icon[0].Data) != read(t, "deploy/olm/icon.svg") {
		t.Errorf("its icon is %+v", s.Spec.Icon)
	}
	if s.Spec.DisplayName == "" || s.Spec.Description == "" || len(s.Spec.Keywords) == 0 || s.Spec.Provider["name"] == "" || s.Spec.Maintainers[0]["email"] == "" || s.Spec.Links[0]["url"] == "" {
		t.Errorf("little is said of it: %+v", s.Spec)
	}
	template := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(s.Annotations["operatorframework.io/suggested-namespace-template"]), template); err != nil || template.GetLabels()["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Errorf("no node pod would start in the namespace %v: %v", template, err)
	}
}

// Full Lifecycle would need backups, and Deep Insights alerts.
func TestBundle_ClaimsTheLevelThatItHas(t *testing.T) {
	s := bundled(t)
	if level := s.Annotations["capabilities"]; level != "Seamless Upgrades" {
		t.Errorf("it claims %s", level)
	}
	if oldest := ">=" + s.Spec.MinKubeVersion + "-0"; oldest != loaded(t).Metadata.KubeVersion || !strings.Contains(read(t, page), "Kubernetes "+strings.TrimSuffix(s.Spec.MinKubeVersion, ".0")+" or newer") {
		t.Errorf("it needs Kubernetes %s, the chart %s", s.Spec.MinKubeVersion, loaded(t).Metadata.KubeVersion)
	}
	built := read(t, "images/packages.lock")
	for label := range s.Labels {
		if arch, ok := strings.CutPrefix(label, "operatorframework.io/arch."); ok && !strings.Contains(built, arch) {
			t.Errorf("no release has images for %s", arch)
		}
	}
	internal := []string{}
	if err := json.Unmarshal([]byte(s.Annotations["operators.operatorframework.io/internal-objects"]), &internal); err != nil {
		t.Fatal(err)
	}
	for _, kind := range s.Spec.Kinds.Owned {
		_, example := examplesByKind(t)[kind.Kind]
		if example == slices.Contains(internal, kind.Name) {
			t.Errorf("%s: that users make one is said and not shown, or the other way round", kind.Kind)
		}
	}
}

// examplesByKind are the kinds of which the bundle shows an object.
func examplesByKind(t *testing.T) map[string]bool {
	t.Helper()
	kinds := map[string]bool{}
	for _, example := range examples(t) {
		kinds[example.GetKind()] = true
	}
	return kinds
}

func TestBundle_FitsTheSchemaOfItsKind(t *testing.T) {
	schema := &apiextensions.JSONSchemaProps{}
	definition := crds.ClusterServiceVersion().Spec.Versions[0]
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Schema.OpenAPIV3Schema, schema, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Read(bundle + "manifests/holdfast.clusterserviceversion.yaml")
	if err != nil || len(objects) != 1 {
		t.Fatal(len(objects), err)
	}
	for key, o := range objects {
		for _, e := range schemavalidation.ValidateCustomResource(nil, o.Object, validator) {
			t.Errorf("%s: %v", key, e)
		}
	}
}

// What those who publish bundles warn of, and why it is so.
var warnedOf = map[string]string{
	"Kind=Snapshot: provided API should have an example annotation":    "it is made for a VolumeSnapshot",
	"Kind=StorageNode: provided API should have an example annotation": "it is made for a node",
	"Kind=Volume: provided API should have an example annotation":      "it is made for a claim",
	"CSV contains permissions to create CRD":                           "the kinds of snapshots are brought where there are none",
}

func TestBundle_IsValidForOperatorFramework(t *testing.T) {
	b, err := manifests.GetBundleFromDir(filepath.Join(root, bundle))
	if err != nil {
		t.Fatal(err)
	}
	all := validation.DefaultBundleValidators.WithValidators(
		validation.OperatorHubV2Validator, validation.StandardCategoriesValidator, validation.StandardCapabilitiesValidator,
		validation.ObjectValidator, validation.OperatorGroupValidator, validation.CommunityOperatorValidator,
		validation.AlphaDeprecatedAPIsValidator, validation.GoodPracticesValidator,
	)
	var warnings []string
	for _, result := range all.Validate(b.ObjectsToValidate()...) {
		for _, e := range result.Errors {
			t.Error(e)
		}
		for _, w := range result.Warnings {
			warnings = append(warnings, w.Error())
		}
	}
	for known, why := range warnedOf {
		rest := slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return strings.Contains(w, known) })
		if len(rest) == len(warnings) {
			t.Errorf("there is no warning of %q, since %s", known, why)
		}
		warnings = rest
	}
	if len(warnings) > 0 {
		t.Errorf("it is warned of %s", strings.Join(warnings, "\n"))
	}
}

func TestBundle_NamesEveryImage(t *testing.T) {
	var want, got []string
	for _, c := range containers(t, operated(t, map[string]any{"cluster": map[string]any{"csi": map[string]any{"attachRequired": true}}}, nil)) {
		want = append(want, c.Image)
	}
	for _, file := range []string{"sidecars", "snapshot-controller"} {
		objects, err := Read("deploy/operated/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers(t, objects) {
			if c.Image != "" { // else it runs where a StorageCluster names one
				want = append(want, c.Image)
			}
		}
	}
	want = append(want, "holdfast/nfs:dev", "holdfast/ceph:dev")
	for _, image := range bundled(t).Spec.RelatedImages {
		got = append(got, image["image"])
	}
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(want, got) || len(got) < 5 {
		t.Errorf("named are %v, not %v", got, want)
	}
}

func TestBundle_ExamplesAreOfItsKinds(t *testing.T) {
	all := examples(t)
	for key, example := range all {
		if !slices.ContainsFunc(bundled(t).Spec.Kinds.Owned, func(kind ownedKind) bool {
			return kind.Kind == example.GetKind() && example.GetAPIVersion() == "holdfast.dev/"+kind.Version
		}) {
			t.Errorf("%s is of no kind", key)
		}
	}
	if all["StorageCluster holdfast"] == nil || len(all) < 3 {
		t.Errorf("there are only %v", slices.Collect(maps.Keys(all)))
	}
}

func TestBundle_LabelsOfTheImageMatch(t *testing.T) {
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, bundle+"metadata/annotations.yaml")), &metadata); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, label := range regexp.MustCompile(`(?m)^LABEL (\S+)=(\S+)$`).FindAllStringSubmatch(read(t, "deploy/olm/bundle.Dockerfile"), -1) {
		labels[label[1]] = label[2]
	}
	if !maps.Equal(labels, metadata.Annotations) || len(labels) != 6 {
		t.Errorf("the image says %v, the bundle %v", labels, metadata.Annotations)
	}
}

package deploy

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	bundle      = "deploy/olm/bundle/"
	serviceFile = bundle + "manifests/holdfast.clusterserviceversion.yaml"
)

// service is a ClusterServiceVersion, as far as it is looked at here: TestBundle_IsValidForOperatorFramework reads all of it.
type service struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Version string
		Kinds   struct {
			Owned []struct{ Name string } `json:"owned"`
		} `json:"customresourcedefinitions"`
		RelatedImages []struct{ Image string } `json:"relatedImages"`
	} `json:"spec"`
}

func readService(t *testing.T, text string) (s service) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func bundled(t *testing.T) service {
	t.Helper()
	return readService(t, read(t, serviceFile))
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

// broughtByTheOperator is the kind that the bundle must not own: a user with the role edit or admin in a namespace could
// make objects of it, by roles that the Operator Lifecycle Manager makes for all kinds that a bundle owns.
const broughtByTheOperator = "nfsservers.holdfast.dev"

func TestBundle_GrantsNFSServersToNoUserDirectlyOrByAggregation(t *testing.T) {
	owned := bundled(t).Spec.Kinds.Owned
	for _, kind := range owned {
		if kind.Name == broughtByTheOperator {
			t.Errorf("the bundle owns %s", kind.Name)
		}
	}
	if len(owned) < 6 {
		t.Errorf("the bundle owns only %v", owned)
	}
	for _, dir := range []string{"deploy", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
				return err
			}
			if strings.Contains(string(must(os.ReadFile(path))(t)), "aggregate-to-") {
				t.Errorf("%s aggregates rights to roles of others", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
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
	b := must(manifests.GetBundleFromDir(filepath.Join(root, bundle)))(t)
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

// attaching is a spec with which the controller has all containers that it may have.
var attaching = of("pools", []any{map[string]any{"name": "block", "engine": "RBD", "ceph": map[string]any{
	"fsid": "11111111-2222-3333-4444-555555555555", "monitors": []any{"v2:10.0.0.1:3300"}, "pool": "rbd",
	"secretRef": map[string]any{"name": "ceph"}, "nodeSecretRef": map[string]any{"name": "ceph-node"},
}}})

func TestBundle_NamesEveryImage(t *testing.T) {
	want, got := []string{"holdfast/nfs:dev", "holdfast/ceph:dev"}, []string{}
	for _, objects := range []Objects{
		operated(t, attaching), parse(t, read(t, "deploy/operated/sidecars.yaml")), parse(t, read(t, "deploy/operated/snapshot-controller.yaml")),
	} {
		for _, c := range containers(t, objects) {
			if c.Image != "" { // else it runs where a StorageCluster names one
				want = append(want, c.Image)
			}
		}
	}
	for _, image := range bundled(t).Spec.RelatedImages {
		got = append(got, image.Image)
	}
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(want, got) || len(got) < 5 {
		t.Errorf("named are %v, not %v", got, want)
	}
}

// Administrators who mirror the images name them there.
func TestBundle_OperatorReadsItsImagesFromTheEnvironment(t *testing.T) {
	names := regexp.MustCompile(`\bRELATED_IMAGE_(\w+)`).FindAllStringSubmatch(read(t, serviceFile), -1)
	for _, name := range names {
		t.Setenv(name[0], "mirror.example/"+name[1])
	}
	for name, c := range containers(t, operated(t, attaching)) {
		if !strings.HasPrefix(c.Image, "mirror.example/") {
			t.Errorf("container %s has the image %s, and not one of %v", name, c.Image, names)
		}
	}
}

package operator

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// roleInDocs is what lets the controller read a secret elsewhere.
var roleInDocs = regexp.MustCompile("(?ms)^```yaml\n(.*kind: RoleBinding.*?)^```$")

func TestSecret_InAnotherNamespaceIsReadWithTheDocumentedRole(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	page := check.Got(os.ReadFile("../../../../docs/http-api.md"))(t)
	found := roleInDocs.FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/http-api.md has no RoleBinding")
	}
	secrets := a.Client.CoreV1().Secrets(a.Namespace)
	check.Got(secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "holdfast-api"}, StringData: map[string]string{"username": "reader", "password": "secret"},
	}, metav1.CreateOptions{}))(t)
	a.ask(func(spec *v1beta1.StorageClusterSpec) {
		spec.SecretRef = &v1beta1.SecretReference{Name: "holdfast-api", Namespace: a.Namespace}
	})
	a.await("to say that it may not read it", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.ProgressingCondition, "InvalidSpec", a.Namespace+"/holdfast-api cannot be read") && says(c, v1beta1.AvailableCondition, "Available")
	})
	file := filepath.Join(t.TempDir(), "role.yaml")
	manifest := strings.ReplaceAll(string(found[1]), "namespace: team", "namespace: "+a.Namespace)
	check.OK(t, os.WriteFile(file, []byte(manifest), 0o600))
	a.eventually("the Role being taken", func(ctx context.Context) error { return a.apply(ctx, file) })
	a.awaitReconciled()
}

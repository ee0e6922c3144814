package operator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// answer is what the API says to a request.
type answer struct {
	code   int
	body   string
	issuer *x509.Certificate // of the connection
}

// ask asks the API at an address, whatever its certificate is.
func ask(ctx context.Context, address, path, user, password string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body), response.TLS.PeerCertificates[0]}, err
}

// get reads what is served to everybody.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// awaitAnswer asks the API until done accepts what it says.
func (a *admin) awaitAnswer(address, path, user, password string, done func(answer) bool) answer {
	a.t.Helper()
	var said answer
	a.eventually("the API at "+address+" to answer", func(ctx context.Context) (err error) {
		said, err = ask(ctx, address, path, user, password)
		if err == nil && !done(said) {
			err = fmt.Errorf("it answers %s with %d: %s", path, said.code, said.body)
		}
		return err
	})
	return said
}

// address of the Service of the API.
func (a *admin) address(name string) string {
	a.t.Helper()
	service := check.Got(a.Client.CoreV1().Services(kube.System).Get(a.t.Context(), name, metav1.GetOptions{}))(a.t)
	return net.JoinHostPort(service.Spec.ClusterIP, fmt.Sprint(service.Spec.Ports[0].Port))
}

func code(want int) func(answer) bool { return func(a answer) bool { return a.code == want } }

func TestAPI_ServesHoldersOfTheSecretsPasswordWithItsCertificate(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	const path = "/api/v1/report"
	address := a.address("holdfast")
	own := a.awaitAnswer(address, path, "", "", code(http.StatusForbidden)).issuer

	data := credentials()
	data["tls.crt"], data["tls.key"] = pair(t, "storage.example")
	a.secret("api", data)
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.SecretRef = &v1beta1.SecretReference{Name: "api"} })
	said := a.awaitAnswer(address, path, data["username"], data["password"], func(said answer) bool {
		return said.code == http.StatusOK && !said.issuer.Equal(own)
	})
	var report struct {
		Cluster struct {
			Name, Phase string
			ReadyNodes  int32
		}
	}
	err := json.Unmarshal([]byte(said.body), &report)
	if shown := report.Cluster; err != nil || shown.Name != clusterName || shown.Phase != string(v1beta1.ClusterRunning) || shown.ReadyNodes != a.get().Status.ReadyNodes {
		t.Errorf("it says %s, %v", said.body, err)
	}
	if names := said.issuer.DNSNames; len(names) != 1 || names[0] != "storage.example" {
		t.Errorf("the certificate is for %v", names)
	}
	a.awaitAnswer(address, path, "", "", code(http.StatusUnauthorized))
	a.awaitAnswer(address, path, data["username"], "a wrong password", code(http.StatusUnauthorized))

	a.awaitAnswer(address, "/readyz", "", "", code(http.StatusOK))
	for name, pod := range a.pods("controller") {
		metrics, err := get(t.Context(), "http://"+net.JoinHostPort(pod.Status.PodIP, "9090")+"/metrics")
		if err != nil || !strings.Contains(metrics, "holdfast_cluster_phase{phase=\"Running\"} 1") {
			t.Errorf("the metrics of pod %s do not have the phase, %v:\n%s", name, err, metrics)
		}
	}

	data["password"] = "another"
	a.secret("api", data)
	a.awaitAnswer(address, path, data["username"], "another", code(http.StatusOK))
}

// pair is a certificate for a host, signed by itself, and its key.
func pair(t *testing.T, host string) (cert, key string) {
	t.Helper()
	private := check.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der := check.Got(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	encoded := check.Got(x509.MarshalPKCS8PrivateKey(private))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

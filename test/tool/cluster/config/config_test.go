package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientcmd "k8s.io/client-go/tools/clientcmd"
	proxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func node() Node {
	return Node{
		Name: "node1", Address: "10.1.0.1", Config: "/d/nodes/node1", Dir: "/d/nodes/node1", ProxyMode: "nftables", PKI: "/d/pki", Socket: "/d/s.sock", Pause: "pause:1", Network: "net",
		PodCIDR: "10.1.129.0/24", ClusterCIDR: "10.1.128.0/17", CgroupRoot: "/group", DNSAddress: "10.1.64.10",
	}
}

func rendered(t *testing.T, render func() ([]byte, error)) []byte {
	t.Helper()
	data, err := render()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestKubelet_AcceptsEveryFieldOfItsConfiguration(t *testing.T) {
	var c kubelet.KubeletConfiguration
	if err := yaml.UnmarshalStrict(rendered(t, node().Kubelet), &c); err != nil {
		t.Fatal(err)
	}
	if *c.Authentication.Anonymous.Enabled || c.Authorization.Mode != kubelet.KubeletAuthorizationModeWebhook {
		t.Error("strangers are let in")
	}
	if c.TLSCertFile != "/d/pki/node1.crt" || c.CgroupRoot != "/group" || c.ClusterDNS[0] != "10.1.64.10" || *c.FailCgroupV1 {
		t.Errorf("got %+v", c)
	}
}

func TestProxy_AcceptsEveryFieldOfItsConfiguration(t *testing.T) {
	var c proxy.KubeProxyConfiguration
	if err := yaml.UnmarshalStrict(rendered(t, node().Proxy), &c); err != nil {
		t.Fatal(err)
	}
	if c.Mode != "nftables" || c.ClusterCIDR != "10.1.128.0/17" {
		t.Errorf("got %+v", c)
	}
}

func TestCNI_PodsGetAddressesOfTheirNode(t *testing.T) {
	var c struct {
		Name    string
		Plugins []struct {
			IPAM struct {
				DataDir string
				Ranges  [][]struct{ Subnet string }
			}
		}
	}
	if err := json.Unmarshal(rendered(t, node().CNI), &c); err != nil {
		t.Fatal(err)
	}
	ipam := c.Plugins[0].IPAM
	if c.Name != "net" || ipam.Ranges[0][0].Subnet != "10.1.129.0/24" || !strings.HasPrefix(ipam.DataDir, "/d/") {
		t.Errorf("got %+v", c)
	}
}

func TestContainerd_KeepsEverythingInTheNodesDirectory(t *testing.T) {
	text := string(rendered(t, node().Containerd))
	for _, want := range []string{`root = "/d/nodes/node1/`, `state = "/d/nodes/node1/`, `Root = "/d/nodes/node1/`, `address = "/d/s.sock"`, `"pause:1"`, `config_path = "/d/nodes/node1/`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
}

func TestKubeconfig_IsCompleteAndVerifiesTheServer(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"ca.crt", "admin.crt", "admin.key"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := Kubeconfig("c", "https://10.1.0.1:6443", dir, "admin")
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "https://10.1.0.1:6443" || string(c.CAData) != "ca.crt" || string(c.KeyData) != "admin.key" || c.Insecure {
		t.Errorf("got %+v", c)
	}
	if _, err := Kubeconfig("c", "", dir, "stranger"); err == nil {
		t.Error("a kubeconfig without a certificate was made")
	}
}

func TestDNS_AddressIsTheOneThatPodsGet(t *testing.T) {
	manifest := string(rendered(t, Base{Address: "10.1.0.1", DNSAddress: "10.1.64.10"}.Manifest))
	if !strings.Contains(manifest, "clusterIP: 10.1.64.10") || !strings.Contains(manifest, "addresses: [10.1.0.1]") {
		t.Error(manifest)
	}
	if corefile := string(rendered(t, DNS{Address: "10.1.0.1", Dir: "/d"}.Corefile)); !strings.Contains(corefile, "bind 10.1.0.1\n") {
		t.Error(corefile)
	}
}

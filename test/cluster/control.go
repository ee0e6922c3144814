package main

import (
	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
	"github.com/holdfast-storage/holdfast/test/cluster/pki"
)

// makeIdentities makes every certificate and kubeconfig of the control plane.
func (c *Cluster) makeIdentities() error {
	dir := c.path("pki")
	ca, err := pki.OpenAuthority(dir, "ca")
	if err != nil {
		return err
	}
	here := []string{c.controlAddress(), "127.0.0.1", "localhost"}
	api := append([]string{
		c.firstService(), "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}, here...)
	subjects := map[string]pki.Subject{
		"admin":                   {User: "admin", Groups: []string{"system:masters"}},
		"etcd":                    {User: "etcd", Hosts: here},
		"etcd-client":             {User: "kube-apiserver"},
		"kube-apiserver":          {User: "kube-apiserver", Hosts: api},
		"kubelet-client":          {User: "kube-apiserver-kubelet-client"},
		"kube-controller-manager": {User: "system:kube-controller-manager", Hosts: here},
		"kube-scheduler":          {User: "system:kube-scheduler", Hosts: here},
		"dns":                     {User: "cluster:dns"},
	}
	for name, subject := range subjects {
		if err := ca.Issue(name, subject); err != nil {
			return err
		}
	}
	// Requests that the API server passes on to an extension are signed by an authority of their own.
	front, err := pki.OpenAuthority(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	if err := front.Issue("front-proxy", pki.Subject{User: "front-proxy-client"}); err != nil {
		return err
	}
	if err := pki.IssueAccountKeys(dir, "accounts"); err != nil {
		return err
	}
	for user, path := range map[string]string{
		"admin":                   c.kubeconfig(),
		"kube-controller-manager": c.path("kube-controller-manager.kubeconfig"),
		"kube-scheduler":          c.path("kube-scheduler.kubeconfig"),
		"dns":                     c.path("dns.kubeconfig"),
	} {
		if err := c.writeKubeconfig(user, path); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) writeKubeconfig(user, path string) error {
	data, err := config.Kubeconfig(c.Name, c.server(), c.path("pki"), user)
	if err != nil {
		return err
	}
	return host.WriteFile(path, data, 0o600)
}

func (c *Cluster) controlPlane(p *probe) []component {
	address := c.controlAddress()
	return []component{
		{"etcd", c.etcd(), p.get("https://" + address + ":2379/health")},
		{"kube-apiserver", c.apiserver(), p.get(c.server() + "/readyz")},
		{"kube-controller-manager", c.controllers(), p.get("https://" + address + ":10257/healthz")},
		{"kube-scheduler", c.scheduler(), p.get("https://" + address + ":10259/healthz")},
		{"dns", []string{c.path("bin", "dns"), "-conf", c.path("Corefile")}, p.get("http://" + address + ":8181/ready")},
	}
}

func (c *Cluster) etcd() []string {
	key := func(name string) string { return c.path("pki", name) }
	client, peer := "https://"+c.controlAddress()+":2379", "https://127.0.0.1:2380"
	return []string{
		"etcd", "--name=" + c.Name, "--data-dir=" + c.path("etcd"), "--logger=zap", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + c.Name + "=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + key("ca.crt"), "--cert-file=" + key("etcd.crt"), "--key-file=" + key("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + key("ca.crt"),
		"--peer-cert-file=" + key("etcd.crt"), "--peer-key-file=" + key("etcd.key"),
		// What a power cut of this machine would take is a cluster for tests; without, all that writes here waits for it.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=4294967296", "--auto-compaction-retention=30m",
	}
}

func (c *Cluster) apiserver() []string {
	key := func(name string) string { return c.path("pki", name) }
	return []string{
		c.path("bin", "kube-apiserver"),
		"--bind-address=" + c.controlAddress(), "--advertise-address=" + c.controlAddress(), "--secure-port=6443",
		"--etcd-servers=https://" + c.controlAddress() + ":2379", "--etcd-cafile=" + key("ca.crt"),
		"--etcd-certfile=" + key("etcd-client.crt"), "--etcd-keyfile=" + key("etcd-client.key"),
		"--tls-cert-file=" + key("kube-apiserver.crt"), "--tls-private-key-file=" + key("kube-apiserver.key"),
		"--client-ca-file=" + key("ca.crt"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority=" + key("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + key("kubelet-client.crt"), "--kubelet-client-key=" + key("kubelet-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + key("accounts.pub"), "--service-account-signing-key-file=" + key("accounts.key"),
		"--requestheader-client-ca-file=" + key("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + key("front-proxy.crt"), "--proxy-client-key-file=" + key("front-proxy.key"),
		"--service-cluster-ip-range=" + c.serviceCIDR(), "--allow-privileged=true",
		"--audit-policy-file=" + c.path("audit.yaml"), "--audit-log-path=" + c.log("audit"), "--audit-log-mode=batch", "--audit-log-maxbackup=9",
	}
}

func (c *Cluster) controllers() []string {
	argv := []string{
		c.path("bin", "kube-controller-manager"),
		"--root-ca-file=" + c.path("pki", "ca.crt"), "--service-account-private-key-file=" + c.path("pki", "accounts.key"),
		"--cluster-signing-cert-file=" + c.path("pki", "ca.crt"), "--cluster-signing-key-file=" + c.path("pki", "ca.key"),
		"--use-service-account-credentials", "--cluster-name=" + c.Name, "--cluster-cidr=" + c.podCIDR(),
		"--flex-volume-plugin-dir=" + c.path("volume-plugins"),
		// At the default of 20 a second it binds 4 claims a second, whatever the driver.
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
	return append(argv, c.withIdentity("kube-controller-manager")...)
}

func (c *Cluster) scheduler() []string {
	argv := []string{c.path("bin", "kube-scheduler"), "--kube-api-qps=500", "--kube-api-burst=1000"}
	return append(argv, c.withIdentity("kube-scheduler")...)
}

// withIdentity is what the two controllers of the control plane have in common. Each is alone, so it need not be elected.
func (c *Cluster) withIdentity(name string) []string {
	kubeconfig := c.path(name + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + c.controlAddress(), "--client-ca-file=" + c.path("pki", "ca.crt"), "--leader-elect=false",
		"--tls-cert-file=" + c.path("pki", name+".crt"), "--tls-private-key-file=" + c.path("pki", name+".key"),
	}
}

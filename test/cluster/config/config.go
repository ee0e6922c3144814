// Package config renders the configuration of the cluster's components.
package config

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed files
var files embed.FS

// Node is the configuration of a node's components.
type Node struct {
	Name        string
	Address     string
	Config      string // directory of the files that are rendered here, as the node sees it
	Dir         string // of everything the node keeps, as the node sees it
	PKI         string
	Socket      string // of containerd
	Pause       string // image that holds a pod's namespaces
	Network     string // name of the pod network, unique on the machine
	PodCIDR     string // of this node's pods
	ClusterCIDR string // of all pods
	CgroupRoot  string
	ProxyMode   string // iptables or nftables, as the node's kernel can
	DNSAddress  string
}

// DNS is the configuration of the name service.
type DNS struct {
	Address string // where it listens
	Dir     string
}

// Base is what is applied to a new cluster.
type Base struct {
	Address    string // where the name service listens
	DNSAddress string // the ClusterIP by which pods find it
}

// Containerd renders containerd's configuration.
func (n Node) Containerd() ([]byte, error) { return render("containerd.toml", n) }

// Registry is what containerd knows of every registry.
func Registry() ([]byte, error) { return files.ReadFile("files/registry.toml") }

// CNI renders the pod network.
func (n Node) CNI() ([]byte, error) { return render("10-pods.conflist", n) }

// Kubelet renders the kubelet's configuration.
func (n Node) Kubelet() ([]byte, error) { return render("kubelet.yaml", n) }

// Proxy renders kube-proxy's configuration.
func (n Node) Proxy() ([]byte, error) { return render("kube-proxy.yaml", n) }

// Corefile renders the name service's configuration.
func (d DNS) Corefile() ([]byte, error) { return render("Corefile", d) }

// Audit is what the API server notes of requests.
func Audit() ([]byte, error) { return files.ReadFile("files/audit.yaml") }

// Manifest renders the objects of a new cluster.
func (b Base) Manifest() ([]byte, error) { return render("base.yaml", b) }

// Kubeconfig renders a kubeconfig for the certificate <user>.crt of the directory, with all it needs inside.
func Kubeconfig(cluster, server, pkiDir, user string) ([]byte, error) {
	data := struct{ Cluster, Server, User, CA, Cert, Key string }{Cluster: cluster, Server: server, User: user}
	for file, field := range map[string]*string{"ca.crt": &data.CA, user + ".crt": &data.Cert, user + ".key": &data.Key} {
		content, err := os.ReadFile(filepath.Join(pkiDir, file))
		if err != nil {
			return nil, err
		}
		*field = base64.StdEncoding.EncodeToString(content)
	}
	return render("kubeconfig.yaml", data)
}

func render(name string, data any) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}

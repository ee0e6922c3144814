// Package api_test asks a real API server whether it keeps the rules of api/v1.
package api_test

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// client is there once a test has requested the server.
var client *clientset.Clientset

// dryRun makes the server check an object as if it were written.
var dryRun = []string{metav1.DryRunAll}

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

func needServer(t *testing.T) {
	t.Helper()
	config := realapi.Config(t)
	if client == nil {
		client = clientset.NewForConfigOrDie(config)
	}
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
)

const (
	reclaimedUUID = "4c4c4544-0051-3610-8052-b4c04f4c3132"
	reclaimedKey  = "kept-secret-foreign-key"
)

func reclaimEnv(typed string) *cli.Env {
	return &cli.Env{Name: "ichor", IOStreams: genericiooptions.IOStreams{In: strings.NewReader(typed)}}
}

func talosconfigText() string {
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return fmt.Sprintf("context: old\ncontexts:\n  old: {ca: %s, crt: %s, key: %s}\n", encoded("ca"), encoded("crt"), encoded(reclaimedKey))
}

func TestWhatIsNoReclaim(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		address string
		change  func(*reclaimOptions)
		want    string
	}{
		"a name for an address":   {"worker-1", func(*reclaimOptions) {}, "no IP address"},
		"no consent":              {"10.0.0.31", func(o *reclaimOptions) { o.uuid = "" }, "as consent"},
		"no UUID":                 {"10.0.0.31", func(o *reclaimOptions) { o.uuid = "yes" }, "no UUID"},
		"no talosconfig":          {"10.0.0.31", func(o *reclaimOptions) { o.secret = "" }, "--talosconfig"},
		"two talosconfigs":        {"10.0.0.31", func(o *reclaimOptions) { o.talosconfig = "file" }, "--talosconfig"},
		"a disk by its device":    {"10.0.0.31", func(o *reclaimOptions) { o.wipeDisks = []string{"/dev/sda"} }, "serial=SERIAL"},
		"a disk by its model":     {"10.0.0.31", func(o *reclaimOptions) { o.wipeDisks = []string{"model=X"} }, "serial=SERIAL"},
		"a disk without a serial": {"10.0.0.31", func(o *reclaimOptions) { o.wipeDisks = []string{"serial="} }, "serial=SERIAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := &reclaimOptions{env: reclaimEnv(""), uuid: reclaimedUUID, secret: "old"}
			tc.change(options)
			if _, err := options.object(tc.address); err == nil || cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a usage error with %q", err, tc.want)
			}
		})
	}
}

func TestATalosconfigIsReadWithoutBeingShown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(file, []byte(talosconfigText()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		from, typed, want string
	}{
		"a file":               {from: file},
		"standard input":       {from: "-", typed: talosconfigText()},
		"no file":              {from: file + ".absent", want: "no such file"},
		"no YAML":              {from: "-", typed: reclaimedKey + ": [", want: "no YAML"},
		"without a context":    {from: "-", typed: "contexts: {old: {key: " + reclaimedKey + "}}", want: "no current context"},
		"without an authority": {from: "-", typed: "context: old\ncontexts: {old: {crt: x, key: " + reclaimedKey + "}}", want: "lacks"},
		"no base64":            {from: "-", typed: "context: old\ncontexts: {old: {ca: x, crt: x, key: " + reclaimedKey + "}}", want: "base64"},
		"too large":            {from: "-", typed: strings.Repeat("#", maxTalosconfig+1), want: "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := &reclaimOptions{env: reclaimEnv(tc.typed), talosconfig: tc.from}
			text, err := options.read()
			if tc.want == "" {
				if err != nil || string(text) != talosconfigText() {
					t.Errorf("%d bytes, %v", len(text), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), reclaimedKey) {
				t.Errorf("got %v, want %q and nothing of the text", err, tc.want)
			}
		})
	}
}

func TestAReclaimAndItsSecret(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	options := &reclaimOptions{env: reclaimEnv(""), uuid: strings.ToUpper(reclaimedUUID), talosconfig: "-", wipeDisks: []string{"serial=S2", "wwid=naa.3"}, acceptLoss: true}
	reclaim, err := options.object("10.0.0.31")
	if err != nil {
		t.Fatal(err)
	}
	api, core := fake.NewSimpleClientset(), kubefake.NewClientset()
	made, err := options.create(ctx, api, core.CoreV1(), reclaim, []byte(talosconfigText()))
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.MachineReclaimSpec{
		Address: "10.0.0.31", UUID: reclaimedUUID, AcceptQuorumLoss: true, TalosconfigSecretRef: v1alpha1.LocalSecretReference{Name: made.Name},
		WipeDisks: []v1alpha1.DiskMatch{{Serial: "S2"}, {WWID: "naa.3"}},
	}
	if diff := cmp.Diff(want, made.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	secret, err := core.CoreV1().Secrets(v1alpha1.SystemNamespace).Get(ctx, made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(secret.Data["talosconfig"]) != talosconfigText() || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Name != made.Name || secret.OwnerReferences[0].Kind != "MachineReclaim" {
		t.Errorf("the Secret has %d bytes and the owners %+v", len(secret.Data["talosconfig"]), secret.OwnerReferences)
	}
}

// Who may not make the Secret leaves no reclaim behind that waits for it.
func TestAReclaimWithoutItsSecretIsTakenBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	options := &reclaimOptions{env: reclaimEnv(""), uuid: reclaimedUUID, talosconfig: "-"}
	reclaim, err := options.object("10.0.0.31")
	if err != nil {
		t.Fatal(err)
	}
	api, core := fake.NewSimpleClientset(), kubefake.NewClientset()
	core.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), reclaim.Name, errors.New("no rights"))
	})
	if _, err := options.create(ctx, api, core.CoreV1(), reclaim, []byte(talosconfigText())); err == nil || !strings.Contains(err.Error(), "--talosconfig-secret") || cli.Code(err) != cli.ExitForbidden {
		t.Errorf("got %v, want to be told what to do instead", err)
	}
	left, err := api.IchorV1alpha1().MachineReclaims().List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d reclaims are left, %v", len(left.Items), err)
	}
}

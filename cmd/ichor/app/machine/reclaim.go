// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// reclaimTimeout is how long a reclaim is waited for: leaving etcd, wiping, and the firmware of a large server.
	reclaimTimeout = time.Hour
	// maxTalosconfig bounds what is read of a file, in bytes.
	maxTalosconfig = 1 << 20
	// talosconfigKey is the key of the Secret that the controller reads.
	talosconfigKey = "talosconfig"
)

type reclaimOptions struct {
	env         *cli.Env
	uuid        string
	talosconfig string
	secret      string
	wipeDisks   []string
	acceptLoss  bool
	dryRun      cli.DryRun
	wait        progress.Wait
	print       *output.Objects
}

func newReclaim(env *cli.Env) *cobra.Command {
	options := &reclaimOptions{env: env, print: output.NewObjects("created")}
	cmd := &cobra.Command{
		Use:   "reclaim ADDRESS --uuid UUID --talosconfig FILE",
		Short: "Wipe a machine that another Talos cluster configured, so that it can be approved here",
		Long: "Wipe a machine that another Talos cluster configured, with a talosconfig of that cluster, so that it waits in maintenance mode and can be approved here. " +
			"The system disk loses that cluster's configuration and data; all other disks are kept but for those named.\n\n" +
			"--uuid is the consent: the machine is asked for its own UUID first, and a difference ends it without a write. It is also refused where the other cluster's etcd " +
			"would lose its quorum. Which disks are wiped and which are kept is in the status of the MachineReclaim before anything is.\n\n" +
			"The talosconfig goes into a Secret in " + v1alpha1.SystemNamespace + " that is deleted together with the MachineReclaim. Who may not create Secrets there names one that an administrator made.",
		Example: cli.Examples(env, `
			ichor machine reclaim 10.0.0.31 --uuid 4c4c4544-0051-3610-8052-b4c04f4c3132 --talosconfig old-cluster.yaml

			# A data disk as well, and without asking whether the old cluster needs the machine
			ichor machine reclaim 10.0.0.31 --uuid 4c4c4544-0051-3610-8052-b4c04f4c3132 --talosconfig-secret old --wipe-disk serial=S2 --accept-quorum-loss
		`),
		Args: cli.Exactly(1, "the address of a machine"),
		RunE: func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&options.uuid, "uuid", "", "The machine's UUID, typed as consent to wipe it. Its console shows it.")
	flags.StringVar(&options.talosconfig, "talosconfig", "", `A talosconfig of the cluster that the machine belongs to, of the role os:admin; its current context counts. "-" is standard input.`)
	flags.StringVar(&options.secret, "talosconfig-secret", "", "A Secret in "+v1alpha1.SystemNamespace+" that has it under the key talosconfig, instead.")
	flags.StringArrayVar(&options.wipeDisks, "wipe-disk", nil, "A disk to wipe besides the system disk: serial=SERIAL or wwid=WWID. May be given several times.")
	flags.BoolVar(&options.acceptLoss, "accept-quorum-loss", false, "Go on even where the other cluster's etcd loses its quorum for good.")
	_ = cmd.MarkFlagFilename("talosconfig")
	options.dryRun.AddFlag(cmd)
	options.wait.AddFlags(cmd, "the machine waits in maintenance mode", reclaimTimeout)
	options.print.AddFlags(cmd)
	return cmd
}

func (o *reclaimOptions) run(ctx context.Context, address string) error {
	for _, err := range []error{o.print.Check(), o.dryRun.Check(), o.wait.Check()} {
		if err != nil {
			return err
		}
	}
	reclaim, err := o.object(address)
	if err != nil {
		return err
	}
	talosconfig, err := o.read()
	if err != nil {
		return err
	}
	config, err := o.env.RESTConfig()
	if err != nil {
		return err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	made, err := o.create(ctx, client, core, reclaim, talosconfig)
	if err != nil {
		return err
	}
	if err := o.print.Print(o.env, made, o.dryRun.Note()); err != nil {
		return err
	}
	if o.dryRun.On() || !o.wait.Wanted(o.env) {
		return nil
	}
	board := progress.NewReclaim(made.Name, o.env.Now())
	return o.wait.Follow(ctx, o.env, board, progress.WatchReclaim(client, board), fmt.Sprintf("kubectl get machinereclaim %s -w", made.Name))
}

// object is what is asked for, with faults that can be told without asking anybody.
func (o *reclaimOptions) object(address string) (*v1alpha1.MachineReclaim, error) {
	uuid := strings.ToLower(strings.TrimSpace(o.uuid))
	_, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return nil, cli.Usagef("%q is no IP address", address)
	case uuid == "":
		return nil, cli.Usagef("type the UUID of the machine at %s with --uuid, as consent to wipe it; its console shows it", address)
	case !identity.IsUUID(uuid):
		return nil, cli.Usagef("--uuid: %q is no UUID such as 4c4c4544-0051-3610-8052-b4c04f4c3132", o.uuid)
	case (o.talosconfig == "") == (o.secret == ""):
		return nil, cli.Usagef("`%s machine reclaim` needs either --talosconfig FILE or --talosconfig-secret NAME", o.env.Name)
	}
	name := "reclaim-" + uuid[:8] + "-" + utilrand.String(5)
	reclaim := &v1alpha1.MachineReclaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineReclaimSpec{
		Address: address, UUID: uuid, AcceptQuorumLoss: o.acceptLoss, TalosconfigSecretRef: v1alpha1.LocalSecretReference{Name: name},
	}}
	if o.secret != "" {
		reclaim.Spec.TalosconfigSecretRef.Name = o.secret
	}
	for _, text := range o.wipeDisks {
		key, value, _ := strings.Cut(text, "=")
		switch {
		case value == "":
			return nil, cli.Usagef("--wipe-disk: %q is neither serial=SERIAL nor wwid=WWID", text)
		case key == "serial":
			reclaim.Spec.WipeDisks = append(reclaim.Spec.WipeDisks, v1alpha1.DiskMatch{Serial: value})
		case key == "wwid":
			reclaim.Spec.WipeDisks = append(reclaim.Spec.WipeDisks, v1alpha1.DiskMatch{WWID: value})
		default:
			return nil, cli.Usagef("--wipe-disk: %q is neither serial=SERIAL nor wwid=WWID", text)
		}
	}
	return reclaim, nil
}

// read reads the talosconfig, and sees that it can be used. No error repeats any of it.
func (o *reclaimOptions) read() ([]byte, error) {
	if o.talosconfig == "" {
		return nil, nil
	}
	from := o.env.In
	if o.talosconfig != "-" {
		file, err := os.Open(o.talosconfig)
		if err != nil {
			return nil, cli.WithCode(cli.ExitUsage, err)
		}
		defer file.Close() //nolint:errcheck // it was read from only
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxTalosconfig+1))
	if err == nil {
		_, err = talos.ParseTalosconfig(text)
	}
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("talosconfig %s: %w", o.talosconfig, err))
	}
	return text, nil
}

// create makes the reclaim, and then its Secret, which goes with it. The controller waits for the Secret; if that can't be
// made, the reclaim is taken back.
func (o *reclaimOptions) create(ctx context.Context, client versioned.Interface, core corev1client.SecretsGetter, reclaim *v1alpha1.MachineReclaim, talosconfig []byte) (*v1alpha1.MachineReclaim, error) {
	options := metav1.CreateOptions{FieldManager: cli.FieldManager, DryRun: o.dryRun.Options(), FieldValidation: metav1.FieldValidationStrict}
	made, err := client.IchorV1alpha1().MachineReclaims().Create(ctx, reclaim, options)
	if err != nil || talosconfig == nil {
		return made, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: made.Spec.TalosconfigSecretRef.Name, Namespace: v1alpha1.SystemNamespace, Labels: map[string]string{"app.kubernetes.io/part-of": "ichor"},
		},
		Data: map[string][]byte{talosconfigKey: talosconfig},
	}
	if !o.dryRun.On() {
		secret.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineReclaim", Name: made.Name, UID: made.UID,
		}}
	}
	_, err = core.Secrets(v1alpha1.SystemNamespace).Create(ctx, secret, options)
	if err == nil || o.dryRun.On() {
		return made, err
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; have an administrator make the Secret, and name it with --talosconfig-secret", err)
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	undo := client.IchorV1alpha1().MachineReclaims().Delete(back, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}})
	if undo != nil && !apierrors.IsNotFound(undo) {
		return nil, errors.Join(err, fmt.Errorf("and machinereclaim %s, which can't go on, is left: %w", made.Name, undo))
	}
	return nil, err
}

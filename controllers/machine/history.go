// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// remember has the server keep what was rendered anew. It is done before the machine's status says that it was rendered,
// and before anything is sent, so a controller that ends in between does it again, and the server keeps it once. The
// version of the machine goes with it: what was decided on an older one is not kept as the newest.
//
// A history that can't be kept for good reasons is no reason to leave a machine without its configuration.
func (v *visit) remember(ctx context.Context, wanted *rendering, versions v1alpha1.SettledVersions) error {
	if wanted.hash == v.config().RenderedHash {
		return nil
	}
	revision, err := v.revision(wanted, versions)
	if err != nil {
		return err
	}
	_, err = v.Client.IchorV1alpha1().TalosMachines().RecordHistory(ctx, v.m.Name, &v1alpha1.TalosMachineHistory{
		ObjectMeta: metav1.ObjectMeta{Name: v.m.Name, ResourceVersion: v.m.ResourceVersion},
		Revisions:  []v1alpha1.ConfigRevision{*revision},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return nil
	case lasting(err):
		klog.FromContext(ctx).Error(err, "A machine's configuration is missing in its history", "machine", v.m.Name)
		v.tell(corev1.EventTypeWarning, reasonHistoryNotKept, "what was rendered for the machine is missing in its history: %s", err)
		return nil
	default:
		return fmt.Errorf("keep what was rendered for machine %s: %w", v.m.Name, err)
	}
}

// lasting tells an answer that would be the same again: the server is older, rights are missing, or what is stored can't be
// read. What etcd can't do for a while is a 503.
func lasting(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// revision describes what was rendered, secrets replaced.
func (v *visit) revision(wanted *rendering, versions v1alpha1.SettledVersions) (*v1alpha1.ConfigRevision, error) {
	revision := &v1alpha1.ConfigRevision{Hash: wanted.hash, Inputs: v1alpha1.ConfigRevisionInputs{
		Cluster:  v1alpha1.ObjectGeneration{Name: v.cluster.Name, UID: v.cluster.UID, Generation: v.cluster.Generation},
		Patches:  wanted.objects,
		Versions: versions,
	}}
	if approval := v.m.Spec.Approval; approval != nil {
		revision.Inputs.ApprovedBy, revision.Inputs.ApprovedAt = approval.By, approval.At
	}
	text, err := machineconfig.Redact(wanted.text, machineconfig.MasksOf(wanted.patches))
	if err != nil {
		return nil, fmt.Errorf("hide the secrets of what was rendered for machine %s: %w", v.m.Name, err)
	}
	if len(text) > v1alpha1.MaxRevisionText {
		revision.TextOmitted = fmt.Sprintf("it has %d bytes, and %d are kept at most", len(text), v1alpha1.MaxRevisionText)
		return revision, nil
	}
	revision.Text = string(text)
	return revision, nil
}

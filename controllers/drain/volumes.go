// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attached are the volumes that are attached to a Node, but for those of the pods that stay there. Nobody remembers
// which pods were evicted: what no pod of the Node uses any more is what is being detached.
func (d Drainer) attached(ctx context.Context, node string) ([]Blocker, error) {
	attachments, err := d.attachmentsOf(ctx, node)
	if err != nil || len(attachments) == 0 {
		return nil, err
	}
	pods, err := d.podsOf(ctx, node)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for i := range pods {
		if hasEnded(&pods[i]) {
			continue
		}
		if err := d.volumesOf(ctx, &pods[i], used); err != nil {
			return nil, err
		}
	}
	var blockers []Blocker
	for i := range attachments {
		volume := attachments[i].Spec.Source.PersistentVolumeName
		if volume != nil && used[*volume] {
			continue
		}
		blockers = append(blockers, stillAttached(&attachments[i]))
	}
	return blockers, nil
}

// attachmentsOf lists the VolumeAttachments of a Node. The API selects none by their Nodes.
func (d Drainer) attachmentsOf(ctx context.Context, node string) ([]storagev1.VolumeAttachment, error) {
	var out []storagev1.VolumeAttachment
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := d.Client.StorageV1().VolumeAttachments().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list VolumeAttachments: %w", err)
		}
		for _, attachment := range list.Items {
			if attachment.Spec.NodeName == node {
				out = append(out, attachment)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// volumesOf adds the names of the PersistentVolumes that a pod uses.
func (d Drainer) volumesOf(ctx context.Context, pod *corev1.Pod, used map[string]bool) error {
	for _, volume := range pod.Spec.Volumes {
		var claim string
		switch {
		case volume.PersistentVolumeClaim != nil:
			claim = volume.PersistentVolumeClaim.ClaimName
		case volume.Ephemeral != nil:
			// Source: Kubernetes: staging/src/k8s.io/component-helpers/storage/ephemeral/ephemeral.go.
			claim = pod.Name + "-" + volume.Name
		default:
			continue
		}
		found, err := d.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read PersistentVolumeClaim %s/%s of %s: %w", pod.Namespace, claim, podName(pod), err)
		}
		used[found.Spec.VolumeName] = true
	}
	return nil
}

func stillAttached(attachment *storagev1.VolumeAttachment) Blocker {
	name := attachment.Name
	if volume := attachment.Spec.Source.PersistentVolumeName; volume != nil {
		name = *volume
	}
	blocker := Blocker{Reason: Attached, Name: "volume " + name, Message: "is still attached by " + attachment.Spec.Attacher}
	if deleted := attachment.DeletionTimestamp; deleted != nil {
		blocker.Since = deleted.Time
		blocker.Message = "is being detached by " + attachment.Spec.Attacher
	}
	if failed := attachment.Status.DetachError; failed != nil {
		blocker.Message += ", which failed: " + quote(fmt.Errorf("%s", failed.Message))
	}
	return blocker
}

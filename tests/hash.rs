//! Local hashes are those that `dynamo-kv-router` 1.6.1 and `kv-index` 2.0.0
//! give; the vectors were taken from both.

use kvradix::LocalHash;
use kvradix::hash::LocalHasher;

fn forty() -> Vec<u32> {
    (1..=40).collect()
}

#[test]
fn blocks_hash_as_other_routers_hash_them() {
    let plain = LocalHasher::new(16);
    for (hasher, expected) in [
        (plain.clone(), [0xea06fc71a5ee6e88, 0x1fbf39bd106be0b5]),
        (plain.clone().adapter("").salt(""), [0xea06fc71a5ee6e88, 0x1fbf39bd106be0b5]),
        (plain.clone().adapter("lora-a"), [0x0702878993acc331, 0x2da6bdcd9245fe44]),
        (plain.clone().salt("salt-1"), [0x120a7d9380e92fe7, 0xb302f3bcf82e9db1]),
        (plain.adapter("lora-a").salt("salt-1"), [0x21cf74cca828e8a8, 0xafa9543ba847e5ff]),
    ] {
        assert_eq!(hasher.hash_blocks(&forty()), LocalHash::from_slice(&expected), "{hasher:?}");
    }
}

#[test]
fn a_long_block_hashes_as_other_routers_hash_it() {
    let tokens: Vec<u32> = (0..64).map(|i| 128_000 + 7 * i).collect();
    assert_eq!(LocalHasher::new(64).hash_blocks(&tokens), [LocalHash(0xe2f1a6672a994442)]);
    assert_eq!(LocalHasher::new(16).hash_block(&tokens, &[]), LocalHash(0xe2f1a6672a994442));
}

#[test]
fn adapter_and_salt_are_told_apart_and_the_last_given_counts() {
    let hash = |hasher: LocalHasher| hasher.hash_block(&[1, 2, 3], &[]);
    let new = || LocalHasher::new(3);
    assert_ne!(hash(new().adapter("a")), hash(new().salt("a")));
    assert_eq!(hash(new().adapter("b").adapter("a")), hash(new().adapter("a")));
    assert_eq!(hash(new().adapter("b").adapter("")), hash(new()));
}

#[test]
fn a_block_that_is_not_full_has_no_hash() {
    let hasher = LocalHasher::new(16);
    assert_eq!(hasher.hash_blocks(&forty()[..15]), []);
    assert_eq!(hasher.hash_blocks(&forty()[..31]), hasher.hash_blocks(&forty()[..16]));
    assert_eq!(hasher.hash_blocks(&[]), []);
}

#[test]
fn what_was_in_the_vector_is_replaced() {
    let hasher = LocalHasher::new(16);
    let mut hashes = vec![LocalHash(1); 9];
    hasher.hash_blocks_into(&forty(), &mut hashes);
    assert_eq!(hashes, hasher.hash_blocks(&forty()));
}

#[test]
fn images_follow_the_tokens_sorted_as_little_endian_u64() {
    let (small, large) = (0x0000_0002_0000_0001_u64, 0x8000_0000_0000_0003_u64);
    // Two u32 in little-endian order are the bytes of one u64.
    let spelt_out = [10, 20, 1, 2, 3, 0x8000_0000];
    let hasher = LocalHasher::new(2).adapter("lora-a");
    let expected = hasher.hash_block(&spelt_out, &[]);
    assert_eq!(hasher.hash_block(&[10, 20], &[large, small]), expected);
    assert_eq!(hasher.hash_block(&[10, 20], &[small, large]), expected);
}

#[test]
fn each_block_has_its_own_images() {
    let hasher = LocalHasher::new(2);
    let hashes = hasher.hash_blocks_with_images(&[1, 2, 3, 4, 5, 6, 7], &[&[][..], &[9, 8]]);
    assert_eq!(
        hashes,
        [
            hasher.hash_block(&[1, 2], &[]),
            hasher.hash_block(&[3, 4], &[8, 9]),
            hasher.hash_block(&[5, 6], &[]),
        ]
    );
}

#[test]
#[should_panic(expected = "at least one token")]
fn a_block_has_at_least_one_token() {
    LocalHasher::new(0);
}

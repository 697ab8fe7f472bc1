//! A misspelt variable of maypole's own is told on standard error.

use maypole::Communicator;
use std::process::Command;

#[test]
#[ignore = "a process of the other test"]
fn a_rank_of_another_test() {
    if std::env::var_os("TEST_ROLE").is_some() {
        for _ in 0..2 {
            Communicator::from_env().unwrap().close().unwrap();
        }
    }
}

#[test]
fn a_misspelt_variable_is_told_once_with_the_nearest_name() {
    let mut rank = Command::new(std::env::current_exe().unwrap());
    rank.args(["a_rank_of_another_test", "--exact", "--ignored", "--nocapture"]);
    rank.env("TEST_ROLE", "alone").env("MAYPOLE_TIMOUT", "5");
    let output = rank.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    let told: Vec<&str> = error.lines().filter(|line| line.contains("MAYPOLE_")).collect();
    let expected = "maypole: there is no variable MAYPOLE_TIMOUT; it is ignored (did you mean \
                    MAYPOLE_TIMEOUT?)";
    assert_eq!(told, [expected], "{error}");
}
